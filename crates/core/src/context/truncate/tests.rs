//! Tests of truncation: exact numbers, and property tests.

use proptest::prelude::*;

use super::*;

const NONE: OutputLimits =
    OutputLimits { max_chars: None, max_lines: None, max_line_length: None, max_matches: None, keep: None };

fn chars_limit(max: u32) -> OutputLimits {
    OutputLimits { max_chars: Some(max), ..NONE }
}

fn lines_limit(max: u32) -> OutputLimits {
    OutputLimits { max_lines: Some(max), ..NONE }
}

fn both(limits: OutputLimits) -> OutputLimits {
    OutputLimits { keep: Some(Keep::HeadAndTail), ..limits }
}

/// The kept text, with `|` for the marker.
fn shown(text: &str, limits: OutputLimits) -> String {
    truncate(text, &limits).text.replace(MARKER, "|")
}

#[test]
fn an_output_of_exactly_the_limit_is_untouched() {
    for (unit, length, kept, truncated) in [
        ("x", 119_999, 119_999, false),
        ("x", 120_000, 120_000, false),
        ("x", 120_001, 120_000, true),
        ("語", 120_000, 120_000, false),
        ("🎉", 120_001, 120_000, true),
    ] {
        let text = unit.repeat(length as usize);
        let expected = if truncated { format!("{}{MARKER}", unit.repeat(kept as usize)) } else { text.clone() };
        let cut = truncate(&text, &chars_limit(120_000));
        assert_eq!(cut.text, expected, "{unit} x {length}");
        assert_eq!((cut.original_chars, cut.kept_chars, cut.truncated), (length, kept, truncated));
    }
}

#[test]
fn truncation_marker_has_its_documented_text() {
    assert_eq!(truncate("abcdef", &chars_limit(3)).text, "abc\n\n[Output truncated - exceeded maximum length]");
}

#[test]
fn a_file_of_2000_by_2000_fits_and_one_more_does_not() {
    let limits = OutputLimits { max_lines: Some(2_000), max_line_length: Some(2_000), ..NONE };
    let line = "x".repeat(2_000);
    let file = format!("{line}\n").repeat(2_000);
    assert_eq!(truncate(&file, &limits).text, file);

    let longer = format!("{file}more\n");
    let by_lines = truncate(&longer, &limits);
    assert_eq!(by_lines.kept_chars, 2_000 * 2_001 - 1);
    assert!(by_lines.text.ends_with(&format!("xx{MARKER}")));

    let wider = format!("{line}y\n{line}\n");
    let by_width = truncate(&wider, &limits);
    assert_eq!(by_width.text, format!("{line}\n{line}\n{MARKER}"));
    assert_eq!((by_width.original_chars, by_width.kept_chars), (4_003, 4_002));
}

#[test]
fn a_thousand_matches_fit_and_one_more_does_not() {
    let limits = OutputLimits { max_matches: Some(1_000), ..NONE };
    let found = "src/a.rs:1: x\n\n".repeat(1_000);
    assert!(!truncate(&found, &limits).truncated);
    let more = truncate(&format!("{found}src/b.rs:1: x\n"), &limits);
    assert!(more.truncated);
    assert_eq!(more.text.matches("src/a.rs").count(), 1_000);
    assert_eq!(more.text.matches("src/b.rs").count(), 0);
}

#[test]
fn head_truncation_keeps_the_beginning() {
    let matches = |max| OutputLimits { max_matches: Some(max), ..NONE };
    let width = |max| OutputLimits { max_line_length: Some(max), ..NONE };
    let table = [
        ("abc", NONE, "abc"),
        ("", chars_limit(0), ""),
        ("abc", chars_limit(0), "|"),
        ("a\nb\nc", lines_limit(3), "a\nb\nc"),
        ("a\nb\nc\n", lines_limit(3), "a\nb\nc\n"),
        ("a\nb\nc\n", lines_limit(2), "a\nb|"),
        ("a\r\nb\r\nc\r\n", lines_limit(2), "a\r\nb|"),
        ("a\n\n\nb\n", lines_limit(2), "a\n|"),
        ("a\n\n\nb\nc\n", matches(2), "a\n\n\nb|"),
        ("a\r\n\r\nb\r\nc", matches(2), "a\r\n\r\nb|"),
        ("abcd\nef\n", width(3), "abc\nef\n|"),
        ("abcd\r\nef", width(3), "abc\r\nef|"),
        ("日本語\nab", width(2), "日本\nab|"),
        ("a\nb", lines_limit(0), "|"),
    ];
    for (text, limits, expected) in table {
        assert_eq!(shown(text, limits), expected, "{text:?} {limits:?}");
    }
}

#[test]
fn head_and_tail_truncation_keeps_half_of_each() {
    let matches = |max| OutputLimits { max_matches: Some(max), ..NONE };
    let table = [
        ("abcdefgh", chars_limit(8), "abcdefgh"),
        ("abcdefgh", chars_limit(4), "ab|\n\ngh"),
        ("abcdefgh", chars_limit(5), "abc|\n\ngh"),
        ("日本語です", chars_limit(3), "日本|\n\nす"),
        ("abcdefgh", chars_limit(1), "a|"),
        ("abcdefgh", chars_limit(0), "|"),
        ("a\nb\nc\nd\ne\n", lines_limit(4), "a\nb|\n\nd\ne\n"),
        ("a\nb\nc\nd\ne", lines_limit(3), "a\nb|\n\ne"),
        ("a\n\nb\n\nc\n\nd\n", matches(2), "a|\n\nd\n"),
    ];
    for (text, limits, expected) in table {
        assert_eq!(shown(text, both(limits)), expected, "{text:?} {limits:?}");
    }
}

#[test]
fn output_limits_apply_in_order() {
    let limits = OutputLimits {
        max_matches: Some(3),
        max_lines: Some(2),
        max_line_length: Some(4),
        max_chars: Some(6),
        keep: None,
    };
    assert_eq!(shown("aaaaa\nbbbbb\nccccc\nddddd\n", limits), "aaaa\nb|");
    let limits = both(OutputLimits { max_lines: Some(4), max_line_length: Some(2), max_chars: Some(6), ..NONE });
    assert_eq!(shown("aaa\nbbb\nccc\nddd\neee\n", limits), "aa\n|\n\nee\n");
    // The last limit does not change the first half if the end is shorter than its half.
    let limits = both(OutputLimits { max_lines: Some(2), max_chars: Some(6), ..NONE });
    assert_eq!(shown("aaaaaaa\nb\nc", limits), "aaaaa|\n\nc");
}

#[test]
fn output_limits_apply_to_all_parts_together() {
    let texts = ["abc".to_owned(), "def".to_owned(), "ghi".to_owned()];
    let whole = truncate_texts(&texts, &chars_limit(11));
    assert_eq!((whole.texts.as_slice(), whole.original_chars, whole.truncated), (texts.as_slice(), 11, false));

    let some = truncate_texts(&texts, &chars_limit(5));
    assert_eq!(some.texts, [format!("abc\nd{MARKER}")]);
    assert_eq!((some.original_chars, some.kept_chars, some.truncated), (11, 5, true));

    let none = truncate_texts(&[], &chars_limit(5));
    assert_eq!((none.texts.len(), none.original_chars, none.truncated), (0, 0, false));
}

fn any_limits() -> impl Strategy<Value = OutputLimits> {
    let limit = || proptest::option::of(0u32..12);
    let keep = prop_oneof![Just(None), Just(Some(Keep::Head)), Just(Some(Keep::HeadAndTail))];
    (limit(), limit(), limit(), limit(), keep).prop_map(|(max_chars, max_lines, max_line_length, max_matches, keep)| {
        OutputLimits { max_chars, max_lines, max_line_length, max_matches, keep }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

    #[test]
    fn truncated_output_never_exceeds_its_limit(text in "[ab\\r\\n語🎉]{0,40}", limits in any_limits()) {
        let cut = truncate(&text, &limits);
        let max = limits.max_chars.unwrap_or(u32::MAX).min(cut.original_chars);
        prop_assert!(cut.kept_chars <= max);
        prop_assert_eq!(cut.truncated, cut.text != text);
        prop_assert_eq!(cut.text.matches(MARKER).count(), usize::from(cut.truncated));
        let kept = cut.text.replace(&format!("{MARKER}\n\n"), "").replace(MARKER, "");
        if limits.keep != Some(Keep::HeadAndTail) {
            prop_assert_eq!(kept.chars().count(), cut.kept_chars as usize);
            prop_assert!(kept.lines().count() <= limits.max_lines.map_or(usize::MAX, |max| max as usize));
        }
    }

    #[test]
    fn without_a_line_length_the_head_is_a_prefix(text in "[ab\\r\\n語🎉]{0,40}", limits in any_limits()) {
        let limits = OutputLimits { max_line_length: None, keep: None, ..limits };
        let cut = truncate(&text, &limits);
        let kept = if cut.truncated { cut.text.strip_suffix(MARKER) } else { Some(cut.text.as_str()) };
        prop_assert!(kept.is_some_and(|kept| text.starts_with(kept)));
    }

    #[test]
    fn head_and_tail_are_the_ends_of_the_text(text in "\\PC{0,40}", max in 2u32..12) {
        let cut = truncate(&text, &both(chars_limit(max)));
        if let Some((head, tail)) = cut.text.split_once(&format!("{MARKER}\n\n")) {
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            prop_assert_eq!(cut.kept_chars, max);
            prop_assert_eq!(head.chars().count(), max.div_ceil(2) as usize);
        } else {
            prop_assert!(!cut.truncated);
        }
    }
}
