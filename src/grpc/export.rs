//! Pages of ExportMessages: stored messages in the format of another API, with notes about what the
//! conversion changed.

use tonic::Status;

use super::{
    decode::ExportMessages,
    json_blob,
    page_budget::READ_BYTES,
    pager::Pager,
    prompt::{self, MAX_NOTES_BYTES},
};
use crate::{
    codec::field::Field as _,
    model::{Message, PromptFormat, Seq, SessionKey, message::StoredPart},
    pb,
    provider::{foreign::WrittenMessage, responses::CustomCalls},
    store::message::{Page, PlacedMessage, View},
    turn::{Engine, host::export::Exported},
};

/// Messages per database read. A page takes as many reads as it needs.
const MESSAGES_PER_READ: u32 = 16;
/// Maximum size in bytes of one exported message within a response.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Builds a page of an export. A message that is too large for the page is stored as a blob before this
/// returns.
pub(super) async fn page(
    engine: &Engine,
    key: &SessionKey,
    wanted: ExportMessages,
) -> Result<pb::ExportMessagesResponse, Status> {
    let ExportMessages { session: _, shape, at: seq, page } = wanted;
    let filter = format!("{}/{}/{shape:?}/{}", key.tenant, key.session, seq.unwrap_or_default());
    let mut page: Pager<i64, _> = Pager::new("ExportMessages", filter, page)?;
    let mut text_calls = match page.position {
        Some(at) if shape == PromptFormat::OpenAiResponses => {
            engine.prompts.text_calls_before(key, seq, Seq(at)).await?
        }
        Some(_) | None => CustomCalls::default(),
    };
    while let Some(most) = page.next_read(MESSAGES_PER_READ) {
        let after = Page::After(Seq(page.position.unwrap_or_default()));
        let read = engine.store().messages_within(key, View::All, seq, after, (most, READ_BYTES)).await?;
        for PlacedMessage { place, message } in page.take(read.items, read.more) {
            let exported = engine.prompts.exported(key, shape, &message, &text_calls).await?;
            if !page.push(place.0, to_pb(engine, key, &message, exported).await?) {
                break;
            }
            text_calls.add(&message);
        }
    }
    let (messages, next_page_token) = page.finish();
    Ok(pb::ExportMessagesResponse { messages, next_page_token })
}

/// Encodes an exported message with its notes.
async fn to_pb(
    engine: &Engine,
    key: &SessionKey,
    message: &Message,
    exported: Exported,
) -> Result<pb::ExportedMessage, Status> {
    let Exported {
        written: WrittenMessage { json, notes },
        memory: _memory, // held until the message is encoded
    } = exported;
    let cut = message.parts.iter().enumerate().filter_map(truncated);
    let notes = notes.iter().map(prompt::note);
    let notes = notes.chain(cut.map(|(part, text)| pb::PromptNote {
        kind: pb::PromptNoteKind::Truncated.into(),
        message_id: message.id.to_string(),
        part_index: i32::try_from(part).unwrap_or(i32::MAX),
        text,
    }));
    let response = message.response.as_ref();
    let compacted_by = message.compacted_by.as_ref();
    let mut exported = pb::ExportedMessage {
        message_id: message.id.to_string(),
        seq: message.seq.0,
        role: message.role.to_field(),
        model: response.map(|it| it.model.clone()).unwrap_or_default(),
        is_summary: message.is_summary,
        compacted_by: compacted_by.map(ToString::to_string).unwrap_or_default(),
        voided_at_seq: message.voided_at.map_or(0, |seq| seq.0),
        pruned_call_ids: message.parts.iter().filter_map(pruned).collect(),
        notes: prompt::bounded(notes, MAX_NOTES_BYTES),
        ..pb::ExportedMessage::default()
    };
    if json.len() <= MAX_MESSAGE_BYTES {
        exported.messages_json = json;
        return Ok(exported);
    }
    exported.messages_blob = Some(json_blob::keep(engine, &key.tenant, json.as_bytes()).await?);
    Ok(exported)
}

/// The tool call, if its result was pruned.
fn pruned(stored: &StoredPart) -> Option<String> {
    let result = stored.part.content.as_result()?;
    stored.pruned.as_ref().map(|_| result.call.to_string())
}

/// A description of how much of a truncated result was kept, with the position of its part.
fn truncated((position, stored): (usize, &StoredPart)) -> Option<(usize, String)> {
    let result = stored.part.content.as_result()?;
    let cut = result.truncation.as_ref()?;
    let text = format!(
        "The result of {} had {} characters, of which {} were kept: the blob {} has all of them.",
        result.name, cut.original_chars, cut.kept_chars, cut.full_output
    );
    Some((position, text))
}
