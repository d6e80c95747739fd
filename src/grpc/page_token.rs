//! Page tokens: the position at which a list continues, opaque to clients and bound to the list and filter
//! they were issued for.
//!
//! The checksum detects damage and mix-ups. It is not a security feature: a forged token cannot read more
//! than the list itself returns, because the filter always comes from the request.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// The first byte of every token. Changes with the layout.
const VERSION: u8 = 1;
/// Length of the checksum in bytes.
const CHECKSUM: usize = 8;
/// Maximum length of a token in bytes.
const MAX_TOKEN_BYTES: usize = 2_048;

/// The token is damaged, or was issued for another list or filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page token is corrupt or belongs to another list or filter")]
pub struct BadToken;

/// Encodes the token for `position` in a list such as `ListTurns`. `filter` is everything that selects the
/// rows: the tenant, the session and the request's filters.
pub fn encode(list: &str, filter: &str, position: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend(checksum(list, filter, position));
    bytes.extend(position.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes the position from a token. Returns an error if the token was not issued for this list and filter.
pub fn decode(token: &str, list: &str, filter: &str) -> Result<String, BadToken> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(BadToken);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| BadToken)?;
    let (&version, rest) = bytes.split_first().ok_or(BadToken)?;
    let (sum, position) = rest.split_at_checked(CHECKSUM).ok_or(BadToken)?;
    let position = str::from_utf8(position).map_err(|_| BadToken)?;
    if version == VERSION && sum == checksum(list, filter, position) { Ok(position.to_owned()) } else { Err(BadToken) }
}

fn checksum(list: &str, filter: &str, position: &str) -> [u8; CHECKSUM] {
    let mut hash = Sha256::new();
    for text in [list, filter, position] {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    let digest = hash.finalize();
    std::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_round_trips() {
        for position in ["", "17", "2026-01-01T00:00:00Z/c-1", "ü"] {
            assert_eq!(decode(&encode("ListTurns", "t/s", position), "ListTurns", "t/s").as_deref(), Ok(position));
        }
    }

    #[test]
    fn a_token_of_another_list_or_filter_is_refused() {
        let token = encode("ListTurns", "t/s", "17");
        for (list, filter) in [("ListMessages", "t/s"), ("ListTurns", "t/s2"), ("ListTurnst", "/s"), ("", "")] {
            assert_eq!(decode(&token, list, filter), Err(BadToken), "{list} {filter}");
        }
    }

    #[test]
    fn a_token_with_any_character_changed_or_missing_is_refused() {
        let token = encode("ListTurns", "t/s", "17");
        for i in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[i] = if changed[i] == b'A' { b'B' } else { b'A' };
            assert_eq!(decode(str::from_utf8(&changed).unwrap(), "ListTurns", "t/s"), Err(BadToken), "{i}");
            assert_eq!(decode(&token[..i], "ListTurns", "t/s"), Err(BadToken), "{i}");
        }
    }

    #[test]
    fn an_arbitrary_page_token_is_refused() {
        for token in ["", "?", "AQ", "=====", "ü", &"A".repeat(5_000)] {
            assert_eq!(decode(token, "ListTurns", "t/s"), Err(BadToken), "{token}");
        }
    }
}
