//! Tool calls and their results, to and from their proto forms.

use std::collections::BTreeSet;

use crate::{
    model::{BlobId, CallId, OutputPart, ToolCall, ToolOutcome, ToolResult, Truncation},
    pb,
};

use super::{
    DecodeError, media,
    number::{signed, unsigned},
};

/// The media type under which the full output of a tool is stored.
const OUTPUT_MEDIA_TYPE: &str = "text/plain; charset=utf-8";

/// Reads call ids from a JSON list, the form in which the statement records which results were accepted.
pub fn ids_from_text(text: &str) -> Result<BTreeSet<CallId>, DecodeError> {
    let ids: Vec<String> =
        serde_json::from_str(text).map_err(|error| DecodeError::new("list of calls", error))?;
    Ok(ids.into_iter().map(CallId::new).collect())
}

/// Writes call ids as a JSON list.
pub fn ids_to_text<'a>(calls: impl Iterator<Item = &'a CallId>) -> String {
    let ids: Vec<&str> = calls.map(CallId::as_str).collect();
    serde_json::Value::from(ids).to_string()
}

/// Converts a call for the wire.
pub fn call_to_pb(call: &ToolCall) -> pb::ToolCall {
    let ToolCall {
        id,
        name,
        arguments,
    } = call;
    pb::ToolCall {
        call_id: id.to_string(),
        tool_name: name.clone(),
        arguments_json: arguments.clone(),
        arguments_blob: None,
    }
}

/// Converts a result for the wire.
pub fn result_to_pb(result: &ToolResult) -> pb::ToolResult {
    let ToolResult {
        call,
        name,
        parts,
        outcome,
        truncation,
        display_text,
    } = result;
    pb::ToolResult {
        call_id: call.to_string(),
        tool_name: name.clone(),
        parts: parts.iter().map(result_part_to_pb).collect(),
        outcome: outcome_to_pb(*outcome).into(),
        truncation: truncation.as_ref().map(truncation_to_pb),
        prune_mark: None,
        display_text: display_text.clone(),
    }
}

/// Converts one part of a result.
pub(crate) fn result_part_to_pb(given: &OutputPart) -> pb::Part {
    let content = match given {
        OutputPart::Text(text) => pb::part::Content::Text(text.clone()),
        OutputPart::Media(given) => pb::part::Content::Media(media::to_pb(given)),
    };
    pb::Part {
        content: Some(content),
        ..pb::Part::default()
    }
}

/// Reads one part of a stored result.
pub(crate) fn result_part_from_pb(part: pb::Part) -> Result<OutputPart, DecodeError> {
    let pb::Part {
        content,
        citations: _,
        provider_metadata_json: _,
        tokens: _,
        preview_of: _,
        sanitized: _,
    } = part;
    match content {
        Some(pb::part::Content::Text(text)) => Ok(OutputPart::Text(text)),
        Some(pb::part::Content::Media(given)) => media::from_pb(given).map(OutputPart::Media),
        Some(
            pb::part::Content::Reasoning(_)
            | pb::part::Content::ToolCall(_)
            | pb::part::Content::ToolResult(_)
            | pb::part::Content::Refusal(_)
            | pb::part::Content::ProviderItem(_)
            | pb::part::Content::StepStart(_)
            | pb::part::Content::CompactionMarker(_),
        )
        | None => Err(DecodeError::new(
            "tool result",
            "one of its parts is neither text nor media",
        )),
    }
}

/// Converts the outcome of a call.
pub fn outcome_to_pb(outcome: ToolOutcome) -> pb::ToolOutcome {
    match outcome {
        ToolOutcome::Success => pb::ToolOutcome::Success,
        ToolOutcome::Error => pb::ToolOutcome::Error,
        ToolOutcome::Denied => pb::ToolOutcome::Denied,
        ToolOutcome::TimedOut => pb::ToolOutcome::TimedOut,
        ToolOutcome::Cancelled => pb::ToolOutcome::Cancelled,
    }
}

/// Reads the stored outcome of a call.
pub(crate) fn outcome_from_pb(outcome: pb::ToolOutcome) -> Result<ToolOutcome, DecodeError> {
    match outcome {
        pb::ToolOutcome::Unspecified => {
            Err(DecodeError::new("tool result", "its outcome is missing"))
        }
        pb::ToolOutcome::Success => Ok(ToolOutcome::Success),
        pb::ToolOutcome::Error => Ok(ToolOutcome::Error),
        pb::ToolOutcome::Denied => Ok(ToolOutcome::Denied),
        pb::ToolOutcome::TimedOut => Ok(ToolOutcome::TimedOut),
        pb::ToolOutcome::Cancelled => Ok(ToolOutcome::Cancelled),
    }
}

/// Converts the description of how an output was truncated.
pub(crate) fn truncation_to_pb(truncation: &Truncation) -> pb::Truncation {
    let Truncation {
        original_chars,
        kept_chars,
        full_output,
        full_bytes,
        for_room,
    } = truncation;
    pb::Truncation {
        original_chars: signed(*original_chars),
        kept_chars: signed(*kept_chars),
        full_output: Some(pb::Blob {
            blob_id: full_output.to_string(),
            media_type: OUTPUT_MEDIA_TYPE.to_owned(),
            size_bytes: i64::try_from(*full_bytes).unwrap_or(i64::MAX),
            create_time: None,
        }),
        for_room: *for_room,
    }
}

/// Reads the stored description of how an output was truncated.
pub(crate) fn truncation_from_pb(truncation: pb::Truncation) -> Result<Truncation, DecodeError> {
    let pb::Truncation {
        original_chars,
        kept_chars,
        full_output,
        for_room,
    } = truncation;
    let Some(pb::Blob {
        blob_id,
        media_type: _,
        size_bytes,
        create_time: _,
    }) = full_output
    else {
        return Err(DecodeError::new("truncation", "the full output is missing"));
    };
    Ok(Truncation {
        original_chars: unsigned("truncation", original_chars)?,
        kept_chars: unsigned("truncation", kept_chars)?,
        full_output: BlobId::new(blob_id),
        full_bytes: u64::try_from(size_bytes)
            .map_err(|error| DecodeError::new("truncation", error))?,
        for_room,
    })
}
