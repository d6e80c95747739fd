//! Identifiers that clients send.

use super::{
    Findings, Path,
    text::{self, AtMost},
};
use crate::{
    model::{BlobId, CallId, CompactionId, MessageId, RequestId, SessionId, TurnId},
    pb::FieldReason,
};

/// Most characters of a session's or turn's id.
const LONGEST_NAME: usize = 128;
/// Most characters of an idempotency key.
const LONGEST_REQUEST: usize = 128;
/// Most characters of a tool call's id; many come from providers.
const LONGEST_CALL: usize = 256;

/// Reads the id of a session.
pub(super) fn session(at: Path<'_>, text: String, found: &mut Findings) -> SessionId {
    name(at, &text, found);
    SessionId::new(text)
}

/// Reads the id of a session that may be left empty.
pub(super) fn optional_session(
    at: Path<'_>,
    text: String,
    found: &mut Findings,
) -> Option<SessionId> {
    (!text.is_empty()).then(|| session(at, text, found))
}

/// Reads the id of a turn.
pub(super) fn turn(at: Path<'_>, text: String, found: &mut Findings) -> TurnId {
    name(at, &text, found);
    TurnId::new(text)
}

/// Reads the id of a turn that may be left empty.
pub(super) fn optional_turn(at: Path<'_>, text: String, found: &mut Findings) -> Option<TurnId> {
    (!text.is_empty()).then(|| turn(at, text, found))
}

/// Reads the id of a message, queued or not.
pub(super) fn message(at: Path<'_>, text: String, found: &mut Findings) -> MessageId {
    name(at, &text, found);
    MessageId::new(text)
}

/// Reads the `request_id` of a request; it may always be left empty.
pub(super) fn request(text: String, found: &mut Findings) -> Option<RequestId> {
    request_at(Path::to("request_id"), text, found)
}

/// Reads an idempotency key that stands elsewhere in its request.
pub(super) fn request_at(at: Path<'_>, text: String, found: &mut Findings) -> Option<RequestId> {
    let text = text::line(at, text, AtMost::Chars(LONGEST_REQUEST), found);
    (!text.is_empty()).then(|| RequestId::new(text))
}

/// Reads the id of a tool call.
pub(super) fn call(at: Path<'_>, text: String, found: &mut Findings) -> CallId {
    if text.is_empty() {
        found.required(at);
    }
    CallId::new(text::line(at, text, AtMost::Chars(LONGEST_CALL), found))
}

/// Reads the id of a compaction.
pub(super) fn compaction(at: Path<'_>, text: String, found: &mut Findings) -> CompactionId {
    name(at, &text, found);
    CompactionId::new(text)
}

/// Reads the id of a blob.
pub(super) fn blob(at: Path<'_>, text: String, found: &mut Findings) -> BlobId {
    name(at, &text, found);
    BlobId::new(text)
}

fn name(at: Path<'_>, text: &str, found: &mut Findings) {
    if text.is_empty() {
        found.required(at);
    } else if text::bounded(at, text, AtMost::Chars(LONGEST_NAME), found)
        && !text.chars().all(is_allowed)
    {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must consist of characters of [A-Za-z0-9._:-]",
        );
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['.', '_', ':', '-'].contains(&c)
}
