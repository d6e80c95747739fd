//! A hash of the beginning of a prompt. It tells whether a response still follows exactly the
//! content that it was generated after: some models sign their reasoning together with that
//! content.
//!
//! The hash is fast and not cryptographic, because a false match costs little: reasoning is sent
//! that the service rejects, and the call is repeated without it (`Anthropic::call`). A client
//! could construct a collision only within its own conversation.

use sha2::{Digest as _, Sha256};
use twox_hash::XxHash3_128;

use crate::model::{Content, Message};

/// Prefix of fingerprints. Fingerprints from SHA-256, an earlier version, have only hex digits.
const FINGERPRINT_PREFIX: char = 'x';

/// Number of bytes that are kept of a SHA-256 hash.
const KEPT_BYTES: usize = 16;

/// The hash of a growing prefix of a prompt.
#[derive(Clone)]
pub(super) struct Prefix {
    hash: XxHash3_128,
    /// The SHA-256 hash of the earlier version, computed only if a response has one to compare
    /// with.
    sha256: Option<Sha256>,
}

impl Prefix {
    /// Creates the hash for a prompt with these messages.
    pub(super) fn of(messages: &[Message]) -> Self {
        Self { hash: XxHash3_128::new(), sha256: messages.iter().any(has_sha256_fingerprint).then(Sha256::new) }
    }

    /// Adds an element: its kind and its fields. Lengths are hashed too, so that different fields
    /// cannot give the same input.
    pub(super) fn add<'a>(&mut self, what: &str, fields: impl IntoIterator<Item = &'a str>) {
        self.field(what);
        for field in fields {
            self.field(field);
        }
        self.write(&[0xff]);
    }

    /// The hash of everything added so far, in its stored form.
    pub(super) fn fingerprint(&self) -> String {
        format!("{FINGERPRINT_PREFIX}{:032x}", self.hash.finish_128())
    }

    /// Whether the hash of everything added so far equals the fingerprint.
    pub(super) fn matches(&self, fingerprint: &str) -> bool {
        if is_sha256(fingerprint) {
            self.sha256.as_ref().map(sha256_fingerprint).as_deref() == Some(fingerprint)
        } else {
            self.fingerprint() == fingerprint
        }
    }

    fn field(&mut self, field: &str) {
        self.write(&(field.len() as u64).to_be_bytes());
        self.write(field.as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
        if let Some(old) = &mut self.sha256 {
            old.update(bytes);
        }
    }
}

/// The SHA-256 hash in hex, truncated.
fn sha256_fingerprint(hash: &Sha256) -> String {
    let digest = hash.clone().finalize();
    let kept = digest[..KEPT_BYTES].iter();
    kept.map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a message has reasoning that depends on a fingerprint of the earlier version.
fn has_sha256_fingerprint(message: &Message) -> bool {
    let response = message.response.as_ref();
    let fingerprint = response.and_then(|response| response.prompt_fingerprint.as_deref());
    let reasons = || {
        let mut parts = message.parts.iter();
        parts.any(|stored| matches!(stored.part.content, Content::Reasoning { .. }))
    };
    fingerprint.is_some_and(is_sha256) && reasons()
}

fn is_sha256(fingerprint: &str) -> bool {
    !fingerprint.starts_with(FINGERPRINT_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{ModelResponse, Part, Role},
    };

    /// The first half of the SHA-256 hash of the empty string.
    const OLD: &str = "e3b0c44298fc1c149afbf4c8996fb924";

    fn answer(fingerprint: &str, content: Content) -> Message {
        let response =
            ModelResponse { prompt_fingerprint: Some(fingerprint.to_owned()), ..testing::response("main/model") };
        Message { response: Some(response), ..testing::message(Role::Assistant, vec![Part::new(content)]) }
    }

    fn thought() -> Content {
        Content::Reasoning { text: "Hm.".to_owned(), redacted: false }
    }

    #[test]
    fn a_fingerprint_tells_every_prefix_from_every_other() {
        let of = |pieces: &[(&str, &[&str])]| {
            let mut prefix = Prefix::of(&[]);
            for (what, fields) in pieces {
                prefix.add(what, fields.iter().copied());
            }
            prefix.fingerprint()
        };
        let all = [
            of(&[]),
            of(&[("user", &[])]),
            of(&[("user", &["ab"])]),
            of(&[("user", &["a", "b"])]),
            of(&[("user", &["a"]), ("b", &[])]),
            of(&[("user", &["a"]), ("user", &["b"])]),
            of(&[("user", &["b"]), ("user", &["a"])]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
            assert_eq!(one.len(), 33);
        }
        assert_eq!(of(&[("user", &["ab"])]), all[2], "the same each time");
        assert_eq!(
            all[0], "x99aa06d3014798d86001c324468d497f",
            "the XXH3 of nothing: those that are stored stay what they are"
        );
    }

    #[test]
    fn fingerprints_of_before_still_match() {
        let mut prefix = Prefix::of(&[answer(OLD, thought())]);
        assert!(prefix.matches(OLD));
        let new = prefix.fingerprint();
        assert!(prefix.matches(&new), "both kinds in one conversation");
        prefix.add("user", ["a"]);
        assert!(!prefix.matches(OLD) && !prefix.matches(&new));
    }

    #[test]
    fn the_old_hash_is_computed_only_for_answers_that_need_it() {
        let needs = |answer: Message| Prefix::of(&[answer]).sha256.is_some();
        assert!(needs(answer(OLD, thought())));
        assert!(!needs(answer(OLD, Content::Text("Yes.".to_owned()))));
        let new = Prefix::of(&[]).fingerprint();
        assert!(!needs(answer(&new, thought())));
        assert!(!Prefix::of(&[]).matches(OLD), "and none is taken for it");
    }
}
