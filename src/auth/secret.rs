//! The format of API keys: `ctxd_`, 64 random hex digits, and 8 hex digits of a checksum. Secret scanners can
//! recognise a key, and a mistyped key is detected without a lookup.

use sha2::{Digest as _, Sha256};

use crate::model::derive::hex;

/// The prefix of every key.
const PREFIX: &str = "ctxd_";
/// Number of random bytes in a key.
const RANDOM: usize = 32;
/// Length of the checksum in bytes: the first bytes of the SHA-256 of the rest of the key.
const CHECKSUM: usize = 4;

/// The SHA-256 of a whole key, which is stored and compared. A key has 256 random bits, so no slow hash is
/// needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(..)")
    }
}

/// The system returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system returned no random bytes: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Generates a key and its hash.
pub fn generate() -> Result<(String, Hash), NoRandomness> {
    let mut bytes = [0; RANDOM];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    let body = format!("{PREFIX}{}", hex(&bytes));
    let checksum = checksum(&body);
    let key = body + &checksum;
    let hash = of(&key);
    Ok((key, hash))
}

/// The hash of a key. Returns `None` if the text is not a well-formed key.
pub fn hash(key: &str) -> Option<Hash> {
    let (body, sum) = key.split_at_checked(key.len().checked_sub(2 * CHECKSUM)?)?;
    let digits = body.strip_prefix(PREFIX)?;
    let whole = digits.len() == 2 * RANDOM && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (whole && checksum(body) == sum).then(|| of(key))
}

/// Parses a hash from hex digits. Returns `None` if it is malformed.
pub fn hash_from_hex(digits: &str) -> Option<Hash> {
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(Hash(hash))
}

fn of(key: &str) -> Hash {
    Hash(Sha256::digest(key).into())
}

fn checksum(body: &str) -> String {
    hex(&Sha256::digest(body)[..CHECKSUM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_recognised_and_a_mistyped_one_is_not() {
        let (key, known) = generate().unwrap();
        assert_eq!(key.len(), 77);
        assert_eq!(hash(&key), Some(known));
        assert_ne!(known, generate().unwrap().1);
        for (at, _) in key.char_indices() {
            let mut wrong = key.clone().into_bytes();
            wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(hash(&String::from_utf8(wrong).unwrap()), None, "at {at}");
            assert_eq!(hash(&key[..at]), None, "cut at {at}");
        }
        assert_eq!(hash("ctxd_ä"), None);
    }

    #[test]
    fn a_hash_is_read_from_its_digits() {
        let (_, known) = generate().unwrap();
        assert_eq!(hash_from_hex(&hex(&known.0)), Some(known));
        assert_eq!(hash_from_hex(&hex(&known.0)[1..]), None);
        assert_eq!(hash_from_hex(&"g".repeat(64)), None);
    }
}
