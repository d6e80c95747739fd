//! Encodes rendered prompts for responses. A prompt that is too large for a response becomes a blob.

use prost::Message as _;
use tonic::Status;

use super::json_blob;
use crate::{
    codec::{
        self,
        field::{Field as _, choices},
    },
    model::{Prompt, PromptNote, PromptNoteKind, ProviderTool, SessionKey, ToolSet},
    pb, store,
    turn::{Engine, host::render::Rendered},
};

/// Maximum size in bytes of a prompt within a response.
const MAX_PROMPT_BYTES: usize = 2 * 1024 * 1024;
/// Maximum size in bytes of the notes of a prompt.
pub(super) const MAX_NOTES_BYTES: usize = 256 * 1024;

/// The tools that the model's provider executes.
fn provider_tools(model: &str, prompt: &Prompt) -> Vec<ProviderTool> {
    let provider = model.split_once('/').map_or("", |(provider, _)| provider);
    let tool = |definition: &String| ProviderTool { provider: provider.to_owned(), definition: definition.clone() };
    prompt.provider_tools.iter().map(tool).collect()
}

/// Encodes a prompt. If it is too large, it is stored as a blob before this returns.
pub(super) async fn to_pb(engine: &Engine, key: &SessionKey, rendered: Rendered) -> Result<pb::Prompt, Status> {
    let Rendered {
        model,
        prompt,
        body,
        version,
        notes,
        memory: _memory, // held until the response is encoded
    } = rendered;
    let mut answer = pb::Prompt {
        model,
        tokens: prompt.size.to_field(),
        context_version: version,
        notes: bounded(notes.iter().map(note), MAX_NOTES_BYTES),
        ..pb::Prompt::default()
    };
    let whole = match body {
        Some(body) if body.len() <= MAX_PROMPT_BYTES => {
            answer.request_json = String::from_utf8_lossy(&body).into_owned();
            return Ok(answer);
        }
        Some(body) => body,
        None => {
            let messages = prompt.transcript.messages();
            let neutral = pb::Prompt {
                system_prompt: prompt.instructions(),
                messages: messages.iter().map(|message| codec::message::to_pb(message, &key.session)).collect(),
                tools: Some(
                    ToolSet {
                        tools: prompt.tools.clone(),
                        provider_tools: provider_tools(&answer.model, &prompt),
                        mcp_servers: Vec::new(),
                    }
                    .to_field(),
                ),
                ..answer.clone()
            };
            if neutral.encoded_len() <= MAX_PROMPT_BYTES {
                return Ok(neutral);
            }
            codec::json::encode(&neutral, "contextd.v1.Prompt").map_err(store::Error::from)?
        }
    };
    drop(prompt);
    answer.request_blob = Some(json_blob::keep(engine, &key.tenant, &whole).await?);
    Ok(answer)
}

/// Notes of up to `most` bytes. If some are left out, the last note has their number.
pub(super) fn bounded(notes: impl Iterator<Item = pb::PromptNote>, most: usize) -> Vec<pb::PromptNote> {
    let mut bytes = 0;
    let mut kept = Vec::new();
    let mut left_out: usize = 0;
    for note in notes {
        bytes += note.encoded_len();
        if bytes <= most {
            kept.push(note);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        kept.push(pb::PromptNote {
            kind: pb::PromptNoteKind::Unspecified.into(),
            message_id: String::new(),
            part_index: -1,
            text: format!("{left_out} more notes were omitted from the response."),
        });
    }
    kept
}

choices! {
    PromptNoteKind = PromptNoteKind { Pruned, Compacted, Truncated, Dropped, Unsupported }
}

/// Encodes a note.
pub(super) fn note(note: &PromptNote) -> pb::PromptNote {
    let PromptNote { kind, message, part, text } = note;
    pb::PromptNote {
        kind: kind.to_field(),
        message_id: message.to_field(),
        part_index: part.map_or(-1, |part| i32::try_from(part).unwrap_or(i32::MAX)),
        text: text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_beyond_the_limit_are_counted_in_the_last_one() {
        let note = |text: &str| pb::PromptNote {
            message_id: "m".to_owned(),
            part_index: 1,
            text: text.to_owned(),
            ..pb::PromptNote::default()
        };
        let notes = vec![note("a"); 5];
        let size = note("a").encoded_len();
        assert_eq!(bounded(notes.clone().into_iter(), 5 * size), notes);
        let kept = bounded(notes.clone().into_iter(), 3 * size);
        assert_eq!(kept[..3], notes[..3]);
        assert_eq!(kept.len(), 4);
        assert_eq!(kept[3].text, "2 more notes were omitted from the response.");
    }
}
