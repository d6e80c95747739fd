//! The rows of a change whose content is encoded once, and their stored sizes.

use jiff::Timestamp;

use super::event_rows::{EventRow, event_rows};
use crate::{
    codec::{self, message::MessageInfo, part::PartRow},
    model::{CallId, Message, MessageId, PartSize, Role, TenantId, message::StoredPart},
    session::{
        change::{Change, ClosedBy},
        config_rows::NewConfig,
    },
    store::{row::signed, session_labels::Labels, session_memory::StoredSize},
};

/// Bytes counted per part in addition to its content, where pages are limited in bytes.
const PART_BYTES: usize = 64;

/// The rows of a change.
pub(super) struct EncodedRows<'a> {
    pub(super) events: Vec<EventRow>,
    pub(super) messages: Vec<MessageRow<'a>>,
    pub(super) parts: Vec<PlacedPart<'a>>,
    pub(super) blobs: Vec<PartBlob<'a>>,
    pub(super) config: Option<ConfigRow<'a>>,
    /// The request of a new turn.
    pub(super) new_request: Option<Vec<u8>>,
    /// The request with which the turn continues.
    pub(super) turn_request: Option<Vec<u8>>,
}

/// A message.
pub(super) struct MessageRow<'a> {
    /// The index of the event that commits it.
    pub(super) event: usize,
    pub(super) id: &'a MessageId,
    pub(super) role: Role,
    pub(super) step: u32,
    pub(super) overhead: u32,
    pub(super) pinned: bool,
    pub(super) is_summary: bool,
    /// When it was created, if not by the commit.
    pub(super) created_at: Option<Timestamp>,
    /// For the first appended message: the version of the transcript that it follows.
    pub(super) version_before: Option<i64>,
    /// Encoded; empty for a message with tool results.
    pub(super) info: Vec<u8>,
}

/// A part of a message.
pub(super) struct PlacedPart<'a> {
    pub(super) message: &'a MessageId,
    pub(super) position: i32,
    pub(super) row: PartRow,
    pub(super) size: PartSize,
}

/// A blob to which a part refers.
pub(super) struct PartBlob<'a> {
    pub(super) message: &'a MessageId,
    pub(super) position: i32,
    pub(super) blob: String,
}

/// The configuration of a new revision.
pub(super) struct ConfigRow<'a> {
    pub(super) new: NewConfig<'a>,
    /// The id of its tool set.
    pub(super) toolset: String,
    pub(super) config: Vec<u8>,
    pub(super) tools: Vec<u8>,
    /// The search keys of the session.
    pub(super) found_by: Labels,
}

impl<'a> EncodedRows<'a> {
    pub(super) fn new(tenant: &TenantId, change: &'a Change<'_>) -> Self {
        let parts = parts(change);
        Self {
            events: event_rows(change),
            messages: messages(change),
            blobs: blobs(change, &parts),
            parts,
            config: change.config.map(|new| ConfigRow::new(tenant, new)),
            new_request: change.begins.map(|row| codec::turn::encode_request(row.request)),
            turn_request: change.turn.request.map(codec::turn::encode_request),
        }
    }

    /// Sizes in bytes of what the change writes, including these messages.
    pub(super) fn written_bytes(&self, messages: &[Message]) -> StoredSize {
        let ids = messages.iter().map(|message| message.id.as_str());
        let requests = [&self.new_request, &self.turn_request].into_iter().flatten();
        StoredSize {
            messages: ids.map(|id| self.info_bytes(id) + self.part_bytes(id).sum::<usize>()).sum(),
            config: self.config.as_ref().map_or(0, |new| new.config.len() + new.tools.len()),
            request: requests.map(Vec::len).sum(),
        }
    }

    /// Size in bytes of the result of a call.
    pub(super) fn result_bytes(&self, call: &CallId) -> usize {
        self.part_bytes(call.as_str()).sum()
    }

    /// Size in bytes of a message, or of the result of a call, as pages count it.
    pub(super) fn page_bytes(&self, id: &str) -> u64 {
        let parts: usize = self.part_bytes(id).map(|bytes| bytes + PART_BYTES).sum();
        (self.info_bytes(id) + parts) as u64
    }

    fn info_bytes(&self, message: &str) -> usize {
        self.messages.iter().find(|row| row.id.as_str() == message).map_or(0, |row| row.info.len())
    }

    /// Size in bytes of each part of a message, or of the result of a call.
    fn part_bytes(&self, id: &str) -> impl Iterator<Item = usize> {
        let is_result = move |row: &PartRow| row.kind == codec::part::TOOL_RESULT && row.call.as_deref() == Some(id);
        let parts = self.parts.iter().filter(move |part| part.message.as_str() == id || is_result(&part.row));
        parts.map(|part| part.row.body.len() + part.row.rest.as_ref().map_or(0, Vec::len))
    }
}

impl<'a> PlacedPart<'a> {
    fn new(message: &'a MessageId, position: i32, StoredPart { part, size, .. }: &StoredPart) -> Self {
        Self { message, position, row: codec::part::to_row(part), size: *size }
    }
}

impl<'a> ConfigRow<'a> {
    fn new(tenant: &TenantId, new: NewConfig<'a>) -> Self {
        let tools = codec::tools::encode(&new.config.tools);
        Self {
            new,
            toolset: codec::tools::content_id(&tools),
            config: codec::config::encode(new.config),
            tools,
            found_by: Labels::of(tenant, new.config),
        }
    }
}

/// The messages of the change's rows, and the message that holds tool results.
fn messages<'a>(change: &'a Change<'_>) -> Vec<MessageRow<'a>> {
    let mut version_before = change.imports.map(|imported| imported.version_before);
    let rows = change.rows.iter().flat_map(|rows| &rows.messages);
    let of_rows = rows.map(|row| MessageRow {
        event: row.event,
        id: &row.message.id,
        role: row.message.role,
        step: row.step,
        overhead: row.message.overhead,
        pinned: row.message.pinned,
        is_summary: row.is_summary,
        created_at: row.message.created_at,
        version_before: version_before.take(),
        info: codec::message::encode_info(&MessageInfo {
            response: row.message.response.clone(),
            metadata: row.message.metadata.clone(),
            queued: row.message.queued.clone(),
        }),
    });
    let before = change.rows.map_or(0, |rows| rows.events.len());
    let results = change.message.iter().map(|(at, message)| MessageRow {
        event: before + at,
        id: &message.id,
        role: Role::Tool,
        step: message.step,
        overhead: message.overhead,
        pinned: false,
        is_summary: false,
        created_at: None,
        version_before: None,
        info: Vec::new(),
    });
    of_rows.chain(results).collect()
}

/// The parts of the change's rows, and the results of the calls that it closes.
fn parts<'a>(change: &'a Change<'_>) -> Vec<PlacedPart<'a>> {
    let of_rows = change.rows.iter().flat_map(|rows| rows.parts());
    let of_rows = of_rows.map(|(message, position, part)| PlacedPart::new(message, signed(position), part));
    let closed = change.closed.iter();
    let results = closed.map(|it| PlacedPart::new(&it.message, signed(it.position), &it.result()));
    of_rows.chain(results).collect()
}

/// The blobs to which parts refer: media of the change's rows, whose body is the id of the blob, and the blobs of tool
/// results, of appended messages and of a queued message.
fn blobs<'a>(change: &'a Change<'_>, parts: &[PlacedPart<'a>]) -> Vec<PartBlob<'a>> {
    let of_rows = change.rows.map_or(0, |rows| rows.parts().count());
    let media = parts.iter().take(of_rows).filter(|part| part.row.kind == codec::part::MEDIA);
    let media =
        media.map(|part| PartBlob { blob: part.row.body.clone(), message: part.message, position: part.position });
    let results = change.closed.iter().flat_map(|closed| {
        let blobs = match closed.closed_by {
            ClosedBy::Answer(answer) => answer.blobs.as_slice(),
            ClosedBy::Synthetic(_) => &[],
        };
        let position = signed(closed.position);
        blobs.iter().map(move |blob| PartBlob { blob: blob.to_string(), message: &closed.message, position })
    });
    let imported = change.imports.map_or(&[][..], |imported| imported.blobs).iter();
    let imported = imported.map(|((message, position), blob)| PartBlob {
        blob: blob.to_string(),
        message,
        position: signed(*position),
    });
    let queued = change.queue.added.iter().flat_map(|added| {
        let blobs = (1..).zip(added.blobs);
        blobs.map(move |(position, blob)| PartBlob { blob: (*blob).to_owned(), message: added.message, position })
    });
    media.chain(results).chain(imported).chain(queued).collect()
}
