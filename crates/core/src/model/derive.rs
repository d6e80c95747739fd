//! Derived identifiers: every replica derives the same id from the same inputs. A repeated request therefore never
//! creates a second object, and any replica can name the message that a lost owner was writing.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{BlobId, CallId, CompactionId, MessageId, RequestId, SessionId, StepPosition, TenantId, TurnId};

/// The session that a request creates if it names none; a repeated request finds it again. `use_number` counts the
/// earlier requests with this id whose sessions still exist.
pub fn session(tenant: &TenantId, request: &RequestId, use_number: u32) -> SessionId {
    let number = use_number.to_string();
    let mut texts = vec!["session", tenant.as_str(), request.as_str()];
    if use_number > 0 {
        texts.push(&number);
    }
    SessionId::new(derived(None, &texts).to_string())
}

/// The user message that a turn starts with.
pub fn input(turn: &TurnId) -> MessageId {
    of_turn(turn, "input", StepPosition::default())
}

/// The user message that queued messages are merged into during a turn, derived from the first of them: each is taken
/// once.
pub fn taken(turn: &TurnId, first: &MessageId) -> MessageId {
    let time = Uuid::parse_str(turn.as_str()).ok();
    MessageId::new(derived(time, &["taken", turn.as_str(), first.as_str()]).to_string())
}

/// The user message that queued messages are merged into while no turn is running, derived from the first of them.
pub fn taken_while_idle(first: &MessageId) -> MessageId {
    let time = Uuid::parse_str(first.as_str()).ok();
    MessageId::new(derived(time, &["gathered", first.as_str()]).to_string())
}

/// The assistant message of an attempt. Any replica can derive it, also to void it.
pub fn answer(turn: &TurnId, at: StepPosition) -> MessageId {
    of_turn(turn, "answer", at)
}

/// The tool message that holds the results of a step's calls.
pub fn results(turn: &TurnId, step: u32) -> MessageId {
    of_turn(turn, "results", StepPosition { step, attempt: 0 })
}

/// The message that holds the summary of a compaction.
pub fn summary(compaction: &CompactionId) -> MessageId {
    let time = Uuid::parse_str(compaction.as_str()).ok();
    MessageId::new(derived(time, &["summary", compaction.as_str()]).to_string())
}

/// A message that a host appends, derived from the UUID of the append and the message's index.
pub fn appended(append: &str, index: usize) -> MessageId {
    let time = Uuid::parse_str(append).ok();
    MessageId::new(derived(time, &["appended", append, &index.to_string()]).to_string())
}

/// A call for which the model service sent no id, or an id that is already used.
pub fn call(message: &MessageId, index: usize) -> CallId {
    CallId::new(format!("call_{}", derived(None, &["call", message.as_str(), &index.to_string()]).simple()))
}

/// The id of content: its SHA-256.
pub fn blob(content: &[u8]) -> BlobId {
    BlobId::new(hex(&Sha256::digest(content)))
}

/// Incremental computation of the id of content.
#[derive(Debug, Clone, Default)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// Adds the next chunk.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The id of the whole content, equal to that of [`blob`].
    pub fn finish(self) -> BlobId {
        BlobId::new(hex(&self.0.finalize()))
    }
}

/// The id under which the chunks of an upload are stored until it is complete. `unique` is a UUID of version 7: it
/// begins with a time, by which abandoned uploads are found.
pub fn upload(unique: Uuid) -> BlobId {
    BlobId::new(format!("upload:{}", unique.simple()))
}

/// A fingerprint of a list of texts, in hex.
pub fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    hex(&digest(texts))
}

/// A number from 0 to 1, uniformly distributed over all attempts: the jitter of their backoff.
pub fn jitter(turn: &TurnId, at: StepPosition) -> f64 {
    let place = format!("{}.{}", at.step, at.attempt);
    let digest = digest(["share", turn.as_str(), &place]);
    f64::from(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])) / f64::from(u32::MAX)
}

fn of_turn(turn: &TurnId, what: &str, at: StepPosition) -> MessageId {
    // The turn's time comes first, so that messages of about the same time are adjacent in an index.
    let time = Uuid::parse_str(turn.as_str()).ok();
    let place = format!("{}.{}", at.step, at.attempt);
    MessageId::new(derived(time, &[what, turn.as_str(), &place]).to_string())
}

/// A UUID of version 8: the time of `time`, if given, and a hash of the texts.
fn derived(time: Option<Uuid>, texts: &[&str]) -> Uuid {
    let digest = digest(texts.iter().copied());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    if let Some(time) = time {
        bytes[..6].copy_from_slice(&time.as_bytes()[..6]);
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The hash of a list of texts. Each is preceded by its length, so that different lists never have the same encoding.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// Lower-case hexadecimal encoding.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
