//! Identifiers that follow from others: any replica finds the same one, so that a repetition never
//! makes a second thing, and anybody can name what a lost owner was writing.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    BlobId, CallId, CompactionId, MessageId, RequestId, SessionId, StepPosition, TenantId, TurnId,
};

/// The session that a request makes when it names none: a repetition finds it again. `use_number`
/// counts the requests that had this id before, whose sessions are still there.
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

/// The user message that queued messages become in a turn, by the first of them: each is taken
/// once.
pub fn taken(turn: &TurnId, first: &MessageId) -> MessageId {
    let time = Uuid::parse_str(turn.as_str()).ok();
    MessageId::new(derived(time, &["taken", turn.as_str(), first.as_str()]).to_string())
}

/// The user message that queued messages become where no turn runs, by the first of them.
pub fn gathered(first: &MessageId) -> MessageId {
    let time = Uuid::parse_str(first.as_str()).ok();
    MessageId::new(derived(time, &["gathered", first.as_str()]).to_string())
}

/// The assistant message of an attempt: any replica can name it, also to say that it is void.
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

/// A message that a host appends: the append names itself by a UUID, and so each of its messages.
pub fn appended(append: &str, index: usize) -> MessageId {
    let time = Uuid::parse_str(append).ok();
    MessageId::new(derived(time, &["appended", append, &index.to_string()]).to_string())
}

/// A call for which the model service gave no id of its own, or one that is taken.
pub fn call(message: &MessageId, index: usize) -> CallId {
    CallId::new(format!(
        "call_{}",
        derived(None, &["call", message.as_str(), &index.to_string()]).simple()
    ))
}

/// Content by its SHA-256.
pub fn blob(content: &[u8]) -> BlobId {
    BlobId::new(hex(&Sha256::digest(content)))
}

/// The id of content that comes piece by piece.
#[derive(Debug, Clone, Default)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// Takes in the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The id of all of it: the same as of [`blob`].
    pub fn finish(self) -> BlobId {
        BlobId::new(hex(&self.0.finalize()))
    }
}

/// Under which id the chunks of an upload are kept until it is complete. `unique` is a UUID of
/// version 7: its time comes first, so that those that were left lying are found by it.
pub fn upload(unique: Uuid) -> BlobId {
    BlobId::new(format!("upload:{}", unique.simple()))
}

/// A fingerprint of several texts, in hex.
pub fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    hex(&digest(texts))
}

/// A share from 0 to 1, spread evenly over all attempts: by it they wait apart from each other.
pub fn share(turn: &TurnId, at: StepPosition) -> f64 {
    let place = format!("{}.{}", at.step, at.attempt);
    let digest = digest(["share", turn.as_str(), &place]);
    f64::from(u32::from_be_bytes([
        digest[0], digest[1], digest[2], digest[3],
    ])) / f64::from(u32::MAX)
}

fn of_turn(turn: &TurnId, what: &str, at: StepPosition) -> MessageId {
    // The turn's time comes first, so that messages of one time stand together in an index.
    let time = Uuid::parse_str(turn.as_str()).ok();
    let place = format!("{}.{}", at.step, at.attempt);
    MessageId::new(derived(time, &[what, turn.as_str(), &place]).to_string())
}

/// A UUID of version 8: the time of another one, if there is one, and a hash of the texts.
fn derived(time: Option<Uuid>, texts: &[&str]) -> Uuid {
    let digest = digest(texts.iter().copied());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    if let Some(time) = time {
        bytes[..6].copy_from_slice(&time.as_bytes()[..6]);
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The hash of several texts: each with its length, so that no two lists run together.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
