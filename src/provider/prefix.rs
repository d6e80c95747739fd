//! What a prompt begins with, as a hash: whether an answer still stands after the very words that
//! it was written after. Some models sign their reasoning together with those.

use sha2::{Digest as _, Sha256};

/// Bytes of a hash that are kept: enough that no two prefixes of a session are taken for one.
const KEPT_BYTES: usize = 16;

/// Digits of the hash in hex.
const DIGITS: [char; 16] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
];

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
        let digits = digest[..KEPT_BYTES].iter();
        let digits = digits.flat_map(|byte| [byte >> 4, byte & 0xf]);
        digits.map(|digit| DIGITS[usize::from(digit)]).collect()
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
        assert_eq!(
            all[0], "e3b0c44298fc1c149afbf4c8996fb924",
            "the first half of a SHA-256: those that are stored stay what they are"
        );
    }
}
