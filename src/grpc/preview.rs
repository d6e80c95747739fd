//! Keeps responses small enough for clients: texts that make an item too large are cut to previews, and the
//! full text is stored as a blob.

use prost::Message as _;
use tonic::Status;

use crate::{
    model::{BlobId, SessionKey, derive},
    pb::{self, event::Payload, part::Content},
    turn::Engine,
};

/// Maximum size in bytes of an event or a list item.
const MAX_ITEM_BYTES: usize = 1024 * 1024;
/// Bytes of a text that its preview keeps.
const PREVIEW: usize = 4 * 1024;
/// The media type of texts.
const TEXT: &str = "text/plain; charset=utf-8";
/// The media type of tool call arguments.
const JSON: &str = "application/json";

/// Makes an event fit the limit. Texts that it cuts are stored as blobs before this returns.
pub async fn fit_event(engine: &Engine, key: &SessionKey, event: &mut pb::Event) -> Result<(), Status> {
    let size = event.encoded_len();
    let parts = match &mut event.payload {
        Some(Payload::MessageCommitted(committed)) => committed.message.as_mut().map(|message| &mut message.parts),
        Some(Payload::ToolCallCompleted(completed)) => completed.result.as_mut().map(|result| &mut result.parts),
        _ => None,
    };
    fit(engine, key, size, parts.into_iter().flatten()).await
}

/// Makes a turn fit the limit by cutting the arguments of its pending tool calls.
pub async fn fit_turn(engine: &Engine, key: &SessionKey, turn: &mut pb::Turn) -> Result<(), Status> {
    let size = turn.encoded_len();
    if size <= MAX_ITEM_BYTES {
        return Ok(());
    }
    let pending = turn.pending_calls.iter_mut().map(|it| &mut it.call);
    let asked = turn.pending_approvals.iter_mut().map(|it| &mut it.call);
    let texts = pending.chain(asked).flatten().map(CuttableText::arguments);
    let wholes = cut_texts(size, texts.collect());
    keep(engine, key, wholes).await
}

/// Makes a queued message fit the limit.
pub async fn fit_queued(engine: &Engine, key: &SessionKey, queued: &mut pb::QueuedMessage) -> Result<(), Status> {
    let size = queued.message.as_ref().map_or(0, pb::InputMessage::encoded_len);
    fit(engine, key, size, queued.message.iter_mut().flat_map(|message| &mut message.parts)).await
}

/// Makes a message fit the limit.
pub async fn fit_message(engine: &Engine, key: &SessionKey, message: &mut pb::Message) -> Result<(), Status> {
    let size = message.encoded_len();
    fit(engine, key, size, message.parts.iter_mut()).await
}

/// Cuts the parts of an item of `size` bytes if it is over the limit.
async fn fit<'a>(
    engine: &Engine,
    key: &SessionKey,
    size: usize,
    parts: impl Iterator<Item = &'a mut pb::Part>,
) -> Result<(), Status> {
    if size <= MAX_ITEM_BYTES {
        return Ok(());
    }
    let wholes = cut(parts);
    keep(engine, key, wholes).await
}

/// Stores the full texts as blobs.
async fn keep(engine: &Engine, key: &SessionKey, wholes: Vec<FullText>) -> Result<(), Status> {
    for FullText { id, media_type, text } in wholes {
        engine.store().keep_blob(&key.tenant, &id, media_type, text.as_bytes()).await?;
    }
    Ok(())
}

/// The full text of a cut part.
#[derive(Debug, PartialEq, Eq)]
struct FullText {
    id: BlobId,
    media_type: &'static str,
    text: String,
}

/// Cuts the largest texts until the parts fit the limit, and returns the full texts.
fn cut<'a>(parts: impl Iterator<Item = &'a mut pb::Part>) -> Vec<FullText> {
    let mut size = 0;
    let mut texts = Vec::new();
    for part in parts {
        size += part.encoded_len();
        collect(part, &mut texts);
    }
    cut_texts(size, texts)
}

/// Cuts the largest texts, of an item of `size` bytes, until the item fits the limit.
fn cut_texts(mut size: usize, mut texts: Vec<CuttableText<'_>>) -> Vec<FullText> {
    texts.sort_by_key(|text| std::cmp::Reverse(text.content.len()));
    let mut wholes = Vec::new();
    for text in texts {
        // The other half of the limit is for content other than text.
        if size <= MAX_ITEM_BYTES / 2 || text.content.len() <= PREVIEW {
            break;
        }
        size -= text.content.len() - PREVIEW;
        wholes.push(text.cut());
    }
    wholes
}

/// A text within a part, and the field that references its blob.
struct CuttableText<'a> {
    content: &'a mut String,
    blob: &'a mut Option<pb::Blob>,
    /// Arguments are JSON, of which a prefix would be useless.
    is_json: bool,
}

fn collect<'a>(part: &'a mut pb::Part, texts: &mut Vec<CuttableText<'a>>) {
    let named = &mut part.preview_of;
    match &mut part.content {
        Some(Content::Text(words) | Content::Refusal(words)) => {
            texts.push(CuttableText { content: words, blob: named, is_json: false })
        }
        Some(Content::Reasoning(reasoning)) => {
            texts.push(CuttableText { content: &mut reasoning.text, blob: named, is_json: false })
        }
        Some(Content::ToolCall(call)) => texts.push(CuttableText::arguments(call)),
        Some(Content::ToolResult(result)) => result.parts.iter_mut().for_each(|part| collect(part, texts)),
        Some(Content::ProviderItem(item)) => {
            texts.push(CuttableText { content: &mut item.item_json, blob: named, is_json: true })
        }
        Some(Content::Media(_) | Content::StepStart(_) | Content::CompactionMarker(_)) | None => {}
    }
}

impl<'a> CuttableText<'a> {
    fn arguments(call: &'a mut pb::ToolCall) -> Self {
        Self { content: &mut call.arguments_json, blob: &mut call.arguments_blob, is_json: true }
    }

    fn cut(self) -> FullText {
        let keep = if self.is_json { 0 } else { self.content.floor_char_boundary(PREVIEW) };
        let preview = self.content[..keep].to_owned();
        let text = std::mem::replace(self.content, preview);
        let id = derive::blob(text.as_bytes());
        let media_type = if self.is_json { JSON } else { TEXT };
        *self.blob = Some(pb::Blob {
            blob_id: id.to_string(),
            media_type: media_type.to_owned(),
            size_bytes: i64::try_from(text.len()).unwrap_or(i64::MAX),
            create_time: None,
        });
        FullText { id, media_type, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> pb::Part {
        pb::Part { content: Some(Content::Text("é".repeat(bytes / 2))), ..pb::Part::default() }
    }

    #[test]
    fn preview_cuts_the_largest_texts_until_the_event_fits() {
        let mut parts = [text(200_000), text(900_000), text(100_000), text(4_000)];
        let whole = parts[1].clone();
        let wholes = cut(parts.iter_mut());
        assert_eq!(wholes.len(), 1);
        let Some(Content::Text(words)) = whole.content else { panic!("not a text") };
        assert_eq!(wholes[0].text, words);
        let Some(Content::Text(preview)) = &parts[1].content else { panic!("not a text") };
        assert_eq!(preview.len(), PREVIEW);
        let blob = parts[1].preview_of.as_ref().expect("a blob");
        assert_eq!((blob.blob_id.as_str(), blob.size_bytes), (derive::blob(words.as_bytes()).as_str(), 900_000));
        assert!(parts.iter().map(pb::Part::encoded_len).sum::<usize>() < MAX_ITEM_BYTES);
    }

    #[test]
    fn preview_fits_any_number_of_results() {
        let result = || pb::Part {
            content: Some(Content::ToolResult(pb::ToolResult {
                parts: vec![text(480_000)],
                ..pb::ToolResult::default()
            })),
            ..pb::Part::default()
        };
        let mut parts: Vec<_> = (0..128).map(|_| result()).collect();
        cut(parts.iter_mut());
        assert!(parts.iter().map(pb::Part::encoded_len).sum::<usize>() < MAX_ITEM_BYTES);
    }

    #[test]
    fn preview_leaves_out_whole_items() {
        let item = |bytes: usize| pb::Part {
            content: Some(Content::ProviderItem(pb::ProviderItem {
                kind: "web_search_call".to_owned(),
                item_json: format!("[{}]", "1,".repeat(bytes / 2)),
                ..pb::ProviderItem::default()
            })),
            ..pb::Part::default()
        };
        let mut parts = vec![item(900_000); 4];
        let wholes = cut(parts.iter_mut());
        assert_eq!(wholes.len(), 4);
        assert!(parts.iter().all(|part| part.preview_of.is_some()));
        assert!(parts.iter().map(pb::Part::encoded_len).sum::<usize>() < MAX_ITEM_BYTES);
    }

    #[test]
    fn preview_leaves_out_whole_arguments() {
        let call = pb::ToolCall { arguments_json: format!("[{}]", "1,".repeat(600_000)), ..pb::ToolCall::default() };
        let mut parts = [pb::Part { content: Some(Content::ToolCall(call)), ..pb::Part::default() }];
        cut(parts.iter_mut());
        let Some(Content::ToolCall(call)) = &parts[0].content else { panic!("not a call") };
        assert!(call.arguments_json.is_empty());
        assert!(call.arguments_blob.is_some());
    }
}
