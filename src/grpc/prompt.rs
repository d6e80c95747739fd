//! Prompts to answers. What is too large for an answer becomes a blob.

use prost::Message as _;
use tonic::Status;

use crate::{
    codec,
    model::{Prompt, PromptNote, PromptNoteKind, ProviderTool, SessionKey, ToolSet, derive},
    pb, store,
    turn::{Engine, context::render::Rendered},
};

/// Bytes that a prompt may have within an answer.
const MOST: usize = 2 * 1024 * 1024;
/// The media type of prompts.
const JSON: &str = "application/json";

/// The tools that the model's own provider runs.
fn provider_tools(model: &str, prompt: &Prompt) -> Vec<ProviderTool> {
    let provider = model.split_once('/').map_or("", |(provider, _)| provider);
    let tool = |definition: &String| ProviderTool {
        provider: provider.to_owned(),
        definition: definition.clone(),
    };
    prompt.provider_tools.iter().map(tool).collect()
}

/// A prompt for the wire. What is made a blob is readable by then.
pub(super) async fn to_pb(
    engine: &Engine,
    key: &SessionKey,
    rendered: Rendered,
) -> Result<pb::Prompt, Status> {
    let Rendered {
        model,
        prompt,
        body,
        version,
        notes,
    } = rendered;
    let mut answer = pb::Prompt {
        model,
        tokens: Some(codec::usage::count_to_pb(&prompt.size)),
        context_version: version,
        notes: notes.iter().map(note).collect(),
        ..pb::Prompt::default()
    };
    let whole = match body {
        Some(body) if body.len() <= MOST => {
            answer.request_json = String::from_utf8_lossy(&body).into_owned();
            return Ok(answer);
        }
        Some(body) => body,
        None => {
            let messages = prompt.transcript.messages();
            let neutral = pb::Prompt {
                system_prompt: prompt.instructions(),
                messages: messages
                    .iter()
                    .map(|message| codec::message::to_pb(message, &key.session))
                    .collect(),
                tools: Some(codec::tools::to_pb(&ToolSet {
                    tools: prompt.tools.clone(),
                    provider_tools: provider_tools(&answer.model, &prompt),
                    mcp_servers: Vec::new(),
                })),
                ..answer.clone()
            };
            if neutral.encoded_len() <= MOST {
                return Ok(neutral);
            }
            codec::json::encode(&neutral, "contextd.v1.Prompt").map_err(store::Error::from)?
        }
    };
    let id = derive::blob(&whole);
    engine
        .store()
        .put_blob(&key.tenant, &id, JSON, &whole)
        .await?;
    answer.request_blob = Some(pb::Blob {
        blob_id: id.to_string(),
        media_type: JSON.to_owned(),
        size_bytes: i64::try_from(whole.len()).unwrap_or(i64::MAX),
        create_time: None,
    });
    Ok(answer)
}

fn note(note: &PromptNote) -> pb::PromptNote {
    let PromptNote {
        kind,
        message,
        part,
        text,
    } = note;
    let kind = match kind {
        PromptNoteKind::Pruned => pb::PromptNoteKind::Pruned,
        PromptNoteKind::Compacted => pb::PromptNoteKind::Compacted,
        PromptNoteKind::Truncated => pb::PromptNoteKind::Truncated,
        PromptNoteKind::Dropped => pb::PromptNoteKind::Dropped,
        PromptNoteKind::Unsupported => pb::PromptNoteKind::Unsupported,
    };
    pb::PromptNote {
        kind: kind.into(),
        message_id: message
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        part_index: part.map_or(-1, |part| i32::try_from(part).unwrap_or(i32::MAX)),
        text: text.clone(),
    }
}
