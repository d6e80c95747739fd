//! Identifiers that the server chooses: by time where they are new, derived where a repetition must find the same one.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::model::{BlobId, CallId, MessageId, RequestId, SessionId, TenantId, TurnId, event::StepPosition};

/// A new session's id. With a request id it is derived from it, so that a repetition finds the session that the first one made.
pub fn session(tenant: &TenantId, request: Option<&RequestId>) -> SessionId {
    match request {
        Some(request) => SessionId::new(derived(&[0; 6], &["session", tenant.as_str(), request.as_str()]).to_string()),
        None => SessionId::new(Uuid::now_v7().to_string()),
    }
}

/// A new turn's id.
pub fn turn() -> TurnId {
    TurnId::new(Uuid::now_v7().to_string())
}

/// The user message that a turn starts with.
pub fn input(turn: &TurnId) -> MessageId {
    of_turn(turn, "input", StepPosition::default())
}

/// The assistant message of an attempt: any replica can name it, also to say that it is void.
pub fn answer(turn: &TurnId, at: StepPosition) -> MessageId {
    of_turn(turn, "answer", at)
}

/// The tool message that holds the results of a step's calls.
pub fn results(turn: &TurnId, step: u32) -> MessageId {
    of_turn(turn, "results", StepPosition { step, attempt: 0 })
}

/// A call for which the model service gave no id of its own, or one that is taken.
pub fn call(message: &MessageId, index: usize) -> CallId {
    CallId::new(format!("call_{}", derived(&[0; 6], &["call", message.as_str(), &index.to_string()]).simple()))
}

/// Content by its SHA-256.
pub fn blob(content: &[u8]) -> BlobId {
    BlobId::new(hex(&Sha256::digest(content)))
}

/// A fingerprint of several texts, in hex.
pub fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hex(&hash.finalize())
}

fn of_turn(turn: &TurnId, what: &str, at: StepPosition) -> MessageId {
    // The turn's time comes first, so that messages of one time stand together in an index.
    let time = Uuid::parse_str(turn.as_str()).map(|uuid| *uuid.as_bytes()).unwrap_or_default();
    let [a, b, c, d, e, f, ..] = time;
    let place = format!("{}.{}", at.step, at.attempt);
    MessageId::new(derived(&[a, b, c, d, e, f], &[what, turn.as_str(), &place]).to_string())
}

/// A UUID of version 8: six given bytes, then a hash of the texts.
fn derived(prefix: &[u8; 6], texts: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    if *prefix == [0; 6] {
        bytes.copy_from_slice(&digest[..16]);
    } else {
        bytes[..6].copy_from_slice(prefix);
        bytes[6..].copy_from_slice(&digest[..10]);
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
