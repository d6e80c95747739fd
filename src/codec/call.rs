//! Tool calls and their results, to and from their proto forms.

use std::collections::BTreeSet;

use crate::{
    model::{CallId, OutputPart, ToolCall, ToolOutcome, ToolResult, Truncation},
    pb,
};

use super::{
    DecodeError,
    field::{Field, choices, messages},
};

/// The media type under which the full output of a tool is stored.
const OUTPUT_MEDIA_TYPE: &str = "text/plain; charset=utf-8";

/// Reads call ids from a JSON list, the form in which the statement records which results were accepted.
pub fn ids_from_text(text: &str) -> Result<BTreeSet<CallId>, DecodeError> {
    let ids: Vec<String> = serde_json::from_str(text).map_err(|error| DecodeError::new("list of calls", error))?;
    Ok(ids.into_iter().map(CallId::new).collect())
}

/// Writes call ids as a JSON list.
pub fn ids_to_text<'a>(calls: impl Iterator<Item = &'a CallId>) -> String {
    let ids: Vec<&str> = calls.map(CallId::as_str).collect();
    serde_json::Value::from(ids).to_string()
}

choices! {
    ToolOutcome = ToolOutcome { Success, Error, Denied, TimedOut, Cancelled }
}

messages! {
    ToolCall = ToolCall {
        id = call_id,
        name = tool_name,
        arguments = arguments_json,
        _ = arguments_blob,
    }
    ToolResult = ToolResult {
        call = call_id,
        name = tool_name,
        parts,
        outcome,
        truncation,
        display_text,
        _ = prune_mark,
    }
}

/// A part of a result.
impl Field<pb::Part> for OutputPart {
    fn to_field(&self) -> pb::Part {
        let content = match self {
            Self::Text(text) => pb::part::Content::Text(text.clone()),
            Self::Media(given) => pb::part::Content::Media(given.to_field()),
        };
        pb::Part { content: Some(content), ..pb::Part::default() }
    }

    fn from_field(name: &'static str, part: pb::Part) -> Result<Self, DecodeError> {
        let pb::Part { content, citations: _, provider_metadata_json: _, tokens: _, preview_of: _, sanitized: _ } =
            part;
        match content {
            Some(pb::part::Content::Text(text)) => Ok(Self::Text(text)),
            Some(pb::part::Content::Media(given)) => Field::from_field(name, given).map(Self::Media),
            Some(_) | None => Err(DecodeError::new(name, "a part is neither text nor media")),
        }
    }
}

impl Field<pb::Truncation> for Truncation {
    fn to_field(&self) -> pb::Truncation {
        let Self { original_chars, kept_chars, full_output, full_bytes, for_room } = self;
        pb::Truncation {
            original_chars: original_chars.to_field(),
            kept_chars: kept_chars.to_field(),
            full_output: Some(pb::Blob {
                blob_id: full_output.to_field(),
                media_type: OUTPUT_MEDIA_TYPE.to_owned(),
                size_bytes: full_bytes.to_field(),
                create_time: None,
            }),
            for_room: *for_room,
        }
    }

    fn from_field(name: &'static str, truncation: pb::Truncation) -> Result<Self, DecodeError> {
        let pb::Truncation { original_chars, kept_chars, full_output, for_room } = truncation;
        let Some(pb::Blob { blob_id, media_type: _, size_bytes, create_time: _ }) = full_output else {
            return Err(DecodeError::new(name, "the full output is missing"));
        };
        Ok(Self {
            original_chars: Field::from_field("original_chars", original_chars)?,
            kept_chars: Field::from_field("kept_chars", kept_chars)?,
            full_output: Field::from_field("blob_id", blob_id)?,
            full_bytes: Field::from_field("size_bytes", size_bytes)?,
            for_room,
        })
    }
}
