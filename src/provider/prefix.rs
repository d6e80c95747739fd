//! What a prompt begins with, as a hash: whether an answer still stands after the very words that
//! it was written after. Some models sign their reasoning together with those.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Bytes of a hash that are kept: enough that no two prefixes of a session are taken for one.
const KEPT_BYTES: usize = 16;

/// A prefix that grows.
#[derive(Debug, Clone, Default)]
pub(in crate::provider) struct Prefix(Sha256);

impl Prefix {
    /// Adds a piece: what it is, and its fields. Lengths go in too, so that no other fields give
    /// the same hash.
    pub(in crate::provider) fn add<'a>(
        &mut self,
        what: &str,
        fields: impl IntoIterator<Item = &'a str>,
    ) {
        self.field(what);
        for field in fields {
            self.field(field);
        }
        self.0.update([0xff]);
    }

    /// The hash of what was added so far, in hex.
    pub(in crate::provider) fn fingerprint(&self) -> String {
        let digest = self.0.clone().finalize();
        let mut hex = String::with_capacity(2 * KEPT_BYTES);
        for byte in &digest[..KEPT_BYTES] {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    fn field(&mut self, field: &str) {
        self.0.update((field.len() as u64).to_be_bytes());
        self.0.update(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_every_prefix_from_every_other() {
        let of = |pieces: &[(&str, &[&str])]| {
            let mut prefix = Prefix::default();
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
            assert_eq!(one.len(), 32);
        }
        assert_eq!(of(&[("user", &["ab"])]), all[2], "the same each time");
    }
}
