//! Decodes identifiers that may be empty.

use crate::model::{RequestId, SessionId, TurnId};

/// A session id that may be empty.
pub(super) fn optional_session(text: String) -> Option<SessionId> {
    (!text.is_empty()).then(|| SessionId::new(text))
}

/// A turn id that may be empty.
pub(super) fn optional_turn(text: String) -> Option<TurnId> {
    (!text.is_empty()).then(|| TurnId::new(text))
}

/// An idempotency key, which may always be empty.
pub(super) fn request(text: String) -> Option<RequestId> {
    (!text.is_empty()).then(|| RequestId::new(text))
}
