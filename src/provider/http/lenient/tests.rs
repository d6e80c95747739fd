//! Tests of unpaired surrogates at every split of a text, and of strings and numbers in place of
//! each other.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Creates a fragment from the content of a JSON string literal.
fn piece(body: &str) -> Piece {
    serde_json::from_str(&format!("\"{body}\"")).expect("a string")
}

fn check(pieces: &[&str], expected: &str, replaced: bool) {
    let mut joiner = Joiner::default();
    let mut whole = Text::default();
    let mut add = |more: Text| {
        whole.text.push_str(&more.text);
        whole.replaced |= more.replaced;
    };
    for body in pieces {
        add(joiner.join(&piece(body)));
    }
    let mut end = Text::default();
    joiner.close(&mut end);
    add(end);
    assert_eq!(whole, Text { text: expected.to_owned(), replaced }, "{pieces:?}");
}

#[test]
fn split_surrogate_pairs_are_joined_and_lone_ones_replaced() {
    let table: [(&[&str], &str, bool); 14] = [
        (&[], "", false),
        (&["a", "b"], "ab", false),
        (&[r"\ud83d\ude00"], "😀", false),
        (&[r"a\ud83d", r"\ude00b"], "a😀b", false),
        (&[r"\ud83d", "", r"\ude00"], "😀", false),
        (&["é\\ud83d", "\\ude00é"], "é😀é", false),
        (&[r"\ud83d"], "\u{fffd}", true),
        (&[r"\ude00"], "\u{fffd}", true),
        (&[r"a\ud83db"], "a\u{fffd}b", true),
        (&[r"\ud83d", "b"], "\u{fffd}b", true),
        (&[r"\ud83d", r"\ud83d\ude00"], "\u{fffd}😀", true),
        (&[r"\ud83d\ud83d", r"\ude00"], "\u{fffd}😀", true),
        (&[r"\ude00\ud83d", r"\ude00"], "\u{fffd}😀", true),
        (&["\u{fffd}"], "\u{fffd}", false),
    ];
    for (pieces, expected, replaced) in table {
        check(pieces, expected, replaced);
    }
}

#[test]
fn strings_and_numbers_are_read_in_either_form() {
    let word = |json: &str| serde_json::from_str::<LenientString>(json).expect(json).0;
    for (json, expected) in [
        ("\"a\"", "a"),
        ("7", "7"),
        ("-1.5", "-1.5"),
        ("true", ""),
        ("{}", ""),
        ("[1]", ""),
        (r#""\ud83d""#, "\u{fffd}"),
        (r#""\u0000""#, "\u{fffd}"),
    ] {
        assert_eq!(word(json), expected, "{json}");
    }
    let number = |json: &str| serde_json::from_str::<Number>(json).expect(json).0;
    for (json, expected) in [
        ("3", Some(3)),
        ("\"3\"", Some(3)),
        ("3.0", Some(3)),
        ("-1", Some(-1)),
        ("3.5", None),
        ("\"three\"", None),
        ("1e999", None),
        ("{}", None),
    ] {
        assert_eq!(number(json), expected, "{json}");
    }
    let count = |json: &str| count(&RawValue::from_string(json.to_owned()).expect(json));
    for (json, expected) in [
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("11.6", Some(12)),
        ("\"12\"", Some(12)),
        ("18446744073709551615", Some(u64::MAX)),
        ("1e300", Some(u64::MAX)),
        ("1e999", None),
        ("-1", None),
        ("null", None),
        ("[]", None),
    ] {
        assert_eq!(count(json), expected, "{json}");
        let amount = serde_json::from_str(json).map(|value| amount(&value));
        // A number that is too large is not a valid value.
        assert_eq!(amount.unwrap_or_default(), expected, "{json}");
    }
}

#[test]
fn a_value_with_lone_surrogates_is_read_with_replacements() {
    let table = [
        (r#"{"a":"\ud83d"}"#, Some(json!({"a": "\u{fffd}"}))),
        (r#"{"a":"\ud83d\ude00\ude00é"}"#, Some(json!({"a": "😀\u{fffd}é"}))),
        (r#"["\\ud83d","\ud83d\\"]"#, Some(json!(["\\ud83d", "\u{fffd}\\"]))),
        (r#"{"\udc00":1}"#, Some(json!({"\u{fffd}": 1}))),
        ("{\"a\":\"\\", None),
        ("{\"a\":\"\\é", None),
        ("{", None),
    ];
    for (json, expected) in table {
        assert_eq!(value(json), expected, "{json}");
    }
}

proptest! {
    #[test]
    fn any_split_of_a_text_decodes_to_the_same_text(
        units in prop::collection::vec(prop_oneof![any::<u16>(), 0xd800_u16..0xe000, 0x20_u16..0x7f], 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(units.len() + 1);
        let body = |units: &[u16]| units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let whole = piece(&body(&units)).whole();
        prop_assert_eq!(&whole.text, &String::from_utf16_lossy(&units));
        let mut joiner = Joiner::default();
        let [mut first, second] = [&units[..cut], &units[cut..]].map(|units| joiner.join(&piece(&body(units))));
        first.text.push_str(&second.text);
        first.replaced |= second.replaced;
        joiner.close(&mut first);
        prop_assert_eq!(first, whole);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[\\\\ud8c0\"é😀f]{0,20}") {
        let _ = value(&text);
    }
}
