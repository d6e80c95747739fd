//! Decodes identifiers that clients send.

use super::{
    Findings, Path,
    text::{self, MaxLength},
};
use crate::{
    model::{BlobId, CallId, CompactionId, MessageId, RequestId, SessionId, TurnId},
    pb::FieldReason,
};

/// Maximum length of a session or turn id, in characters.
const MAX_ID_CHARS: usize = 128;
/// Maximum length of an idempotency key, in characters.
const MAX_REQUEST_ID_CHARS: usize = 128;
/// Maximum length of a tool call id, in characters. Many ids come from providers.
const MAX_CALL_ID_CHARS: usize = 256;

/// Decodes a session id.
pub(super) fn session(at: Path<'_>, text: String, found: &mut Findings) -> SessionId {
    check_id(at, &text, found);
    SessionId::new(text)
}

/// Decodes a session id that may be empty.
pub(super) fn optional_session(
    at: Path<'_>,
    text: String,
    found: &mut Findings,
) -> Option<SessionId> {
    (!text.is_empty()).then(|| session(at, text, found))
}

/// Decodes a turn id.
pub(super) fn turn(at: Path<'_>, text: String, found: &mut Findings) -> TurnId {
    check_id(at, &text, found);
    TurnId::new(text)
}

/// Decodes a turn id that may be empty.
pub(super) fn optional_turn(at: Path<'_>, text: String, found: &mut Findings) -> Option<TurnId> {
    (!text.is_empty()).then(|| turn(at, text, found))
}

/// Decodes the id of a message, queued or not.
pub(super) fn message(at: Path<'_>, text: String, found: &mut Findings) -> MessageId {
    check_id(at, &text, found);
    MessageId::new(text)
}

/// Decodes the `request_id` of a request, which may always be empty.
pub(super) fn request(text: String, found: &mut Findings) -> Option<RequestId> {
    request_at(Path::to("request_id"), text, found)
}

/// Decodes an idempotency key in another field.
pub(super) fn request_at(at: Path<'_>, text: String, found: &mut Findings) -> Option<RequestId> {
    let text = text::single_line(at, text, MaxLength::Chars(MAX_REQUEST_ID_CHARS), found);
    (!text.is_empty()).then(|| RequestId::new(text))
}

/// Decodes a tool call id.
pub(super) fn call(at: Path<'_>, text: String, found: &mut Findings) -> CallId {
    if text.is_empty() {
        found.required(at);
    }
    CallId::new(text::single_line(
        at,
        text,
        MaxLength::Chars(MAX_CALL_ID_CHARS),
        found,
    ))
}

/// Decodes a compaction id.
pub(super) fn compaction(at: Path<'_>, text: String, found: &mut Findings) -> CompactionId {
    check_id(at, &text, found);
    CompactionId::new(text)
}

/// Decodes a blob id.
pub(super) fn blob(at: Path<'_>, text: String, found: &mut Findings) -> BlobId {
    check_id(at, &text, found);
    BlobId::new(text)
}

fn check_id(at: Path<'_>, text: &str, found: &mut Findings) {
    if text.is_empty() {
        found.required(at);
    } else if text::check_length(at, text, MaxLength::Chars(MAX_ID_CHARS), found)
        && !text.chars().all(is_allowed)
    {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must contain only the characters [A-Za-z0-9._:-]",
        );
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['.', '_', ':', '-'].contains(&c)
}
