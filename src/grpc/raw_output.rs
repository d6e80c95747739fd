//! Adds the uncut outputs of tools to the events of streams that request them.

use tonic::Status;

use crate::{
    model::{BlobId, SessionKey},
    pb::{self, event::Payload, part::Content},
    turn::Engine,
};

/// Maximum size in bytes of an uncut output in an event. A quarter of the event limit, because the cut output
/// may take half of it.
const MAX_RAW_BYTES: i64 = 256 * 1024;
/// Bytes shown of a larger output.
const PREVIEW: usize = 4 * 1024;

/// Adds parts with the uncut output to a `tool_call_completed` whose output was cut. Leaves other events
/// unchanged.
pub(super) async fn add(engine: &Engine, key: &SessionKey, event: &mut pb::Event) -> Result<(), Status> {
    let Some(Payload::ToolCallCompleted(completed)) = &mut event.payload else {
        return Ok(());
    };
    let Some(result) = &completed.result else {
        return Ok(());
    };
    let Some(whole) = result.truncation.as_ref().and_then(|truncation| truncation.full_output.as_ref()) else {
        return Ok(());
    };
    let id = BlobId::new(whole.blob_id.clone());
    let fits = whole.size_bytes <= MAX_RAW_BYTES;
    let wanted = if fits { usize::try_from(whole.size_bytes).unwrap_or(usize::MAX) } else { PREVIEW };
    let text = read_prefix(engine, key, &id, wanted).await?;
    let text = pb::Part {
        content: Some(Content::Text(text)),
        preview_of: (!fits).then(|| whole.clone()),
        ..pb::Part::default()
    };
    completed.raw_parts = with_text(&result.parts, text);
    Ok(())
}

/// The first `wanted` bytes of a stored text, or all of it if it is shorter.
async fn read_prefix(engine: &Engine, key: &SessionKey, id: &BlobId, wanted: usize) -> Result<String, Status> {
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < wanted {
        let piece = engine.store().blob_piece(&key.tenant, id, bytes.len() as u64).await?;
        if piece.is_empty() {
            break;
        }
        bytes.extend(piece);
    }
    bytes.truncate(wanted);
    // Drop a character that the cut splits.
    let end = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
    bytes.truncate(end);
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// The parts of a result, with `text` in the position of the first text part in place of all text parts.
fn with_text(parts: &[pb::Part], text: pb::Part) -> Vec<pb::Part> {
    let is_text = |part: &pb::Part| matches!(part.content, Some(Content::Text(_)));
    let at = parts.iter().position(is_text).unwrap_or_default();
    let mut raw: Vec<pb::Part> = parts.iter().filter(|part| !is_text(part)).cloned().collect();
    raw.insert(at, text);
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_output_replaces_the_first_text_and_keeps_media() {
        let part = |content| pb::Part { content: Some(content), ..pb::Part::default() };
        let text = |words: &str| part(Content::Text(words.to_owned()));
        let media = || part(Content::Media(Default::default()));
        let table = [
            (vec![text("a")], vec![text("whole")]),
            (vec![media(), text("a"), media(), text("b")], vec![media(), text("whole"), media()]),
            (vec![media()], vec![text("whole"), media()]),
        ];
        for (parts, expected) in table {
            assert_eq!(with_text(&parts, text("whole")), expected);
        }
    }
}
