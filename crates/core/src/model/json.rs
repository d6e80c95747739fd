//! Repairs JSON text that a model wrote, so that strict parsers accept it.

use std::borrow::Cow;

/// Replaces each escaped lone surrogate with an escaped U+FFFD.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(escape) = json[at..].find('\\').map(|found| at + found) {
        let end = match (surrogate(json, escape), surrogate(json, escape + 6)) {
            (None, _) => escape + 2,
            (Some(0xd800..0xdc00), Some(0xdc00..)) => escape + 12,
            (Some(_), _) => {
                repaired.push_str(&json[kept..escape]);
                repaired.push_str("\\ufffd");
                kept = escape + 6;
                kept
            }
        };
        at = json.ceil_char_boundary(end);
    }
    if kept == 0 { Cow::Borrowed(json) } else { Cow::Owned(repaired + &json[kept..]) }
}

/// The surrogate escaped at this position. Returns `None` if there is none.
fn surrogate(json: &str, at: usize) -> Option<u16> {
    let hex = json.get(at..at.checked_add(6)?)?.strip_prefix("\\u")?;
    u16::from_str_radix(hex, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        let table = [
            (r#"{"a":"plain"}"#, r#"{"a":"plain"}"#),
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\ude00 \ud83d\n"}"#, r#"{"a":"\ufffd \ufffd\n"}"#),
            (r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#),
        ];
        for (written, expected) in table {
            assert_eq!(replace_lone_surrogates(written), expected, "{written}");
        }
    }
}
