//! Comments: public items have one, and the constructions that mark translated prose are rare.

use std::sync::LazyLock;

use regex::Regex;

use super::{assert_clean, files, sources, without_tests};

/// At most one comment line in this many may match. Some matches are legitimate, such as a word of a tokenizer.
const ONE_IN: usize = 100;

/// Constructions that make a reader read a sentence twice.
const CONSTRUCTIONS: &[&str] = &[
    r"so (?:many|much|long|often|large|small)",
    r"who(?:m)?ever",
    r"beside",
    r"of (?:its|their|his) own",
    r"by (?:itself|themselves)",
    r"stands?",
    r"words?",
    r"(?:is|are|was|were) told",
    r"(?:tells?|hears?) of",
    r"said",
    r"asked",
    r"what waits",
    r"in any case",
    r"let (?:be|go)",
    r"comes? when",
    r"as \w+ as (?:may|there|it|they)",
    r"none of which",
    r"nobody",
    r"somebody",
    r"became of",
    r"heeds?",
    r"in earnest",
    r"at hand",
    r"in vain",
    r"meanwhile",
    r"go(?:es|ing)? on",
    r"what (?:it|they|he) (?:is|are|was|were|has|have|had)",
    r"borne",
];

/// Documentation that only points at a name.
const EMPTY: &str = r"^(?:Which|(?:Its|Their|The) \w+|The same|Likewise|All of them|None|That)\.$";

static TRANSLATED: LazyLock<Regex> = LazyLock::new(|| {
    let listed = CONSTRUCTIONS.join("|");
    Regex::new(&format!(r"(?i)\b(?:{listed})\b|; none:|{EMPTY}")).expect("a valid pattern")
});

/// Code within a comment.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`|\[[^\]]*\]").expect("a valid pattern"));

#[test]
fn public_items_have_documentation() {
    assert_clean(&super::product(), undocumented);
}

#[test]
fn comments_read_like_plain_english() {
    let mut all = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples"] {
        all.extend(sources(folder));
    }
    all.extend(files("src", "sql"));
    all.extend(files("proto", "proto"));
    all.retain(|(path, _)| !path.ends_with("tidy/prose.rs"));
    let lines: Vec<(&str, &str)> =
        all.iter().flat_map(|(path, text)| comment_lines(text).map(move |line| (path.as_str(), line))).collect();
    let translated: Vec<_> = lines.iter().filter(|(_, line)| is_translated(line)).collect();
    println!("{} of {} comment lines", translated.len(), lines.len());
    assert!(
        translated.len() * ONE_IN <= lines.len(),
        "{} of {} comment lines need another wording: {translated:#?}",
        translated.len(),
        lines.len()
    );
}

/// The text of each comment line. The first line of a statement is its name.
fn comment_lines(text: &str) -> impl Iterator<Item = &str> {
    let of_line = |line: &'_ str| -> Option<usize> {
        let indent = line.len() - line.trim_start().len();
        let marks = ["///", "//!", "//", "--"];
        let mark = marks.into_iter().find(|mark| line[indent..].starts_with(mark))?;
        Some(indent + mark.len())
    };
    text.lines()
        .filter_map(move |line| Some(line[of_line(line)?..].trim()))
        .filter(|line| !line.is_empty() && !line.starts_with("store::"))
}

fn is_translated(line: &str) -> bool {
    TRANSLATED.is_match(&QUOTED.replace_all(line, ""))
}

/// Public functions, types and traits without a doc comment. The name of a field, a variant or a constant may say enough.
fn undocumented(path: &str, text: &str) -> Vec<String> {
    const ITEMS: [&str; 7] = ["fn", "async fn", "const fn", "struct", "enum", "trait", "type"];
    if path.contains("/tests") {
        return Vec::new();
    }
    let mut is_documented = false;
    let mut is_attribute = false;
    let mut found = Vec::new();
    for line in without_tests(text).lines() {
        let code = line.trim();
        let of_item = code.strip_prefix("pub ").is_some_and(|item| {
            ITEMS.iter().any(|kind| item.strip_prefix(kind).is_some_and(|rest| rest.starts_with(' ')))
        });
        if of_item && !is_documented && !code.contains('$') {
            found.push(format!("`{code}` has no doc comment"));
        }
        is_attribute = code.starts_with("#[") || is_attribute && !code.ends_with(")]");
        is_documented =
            code.starts_with("///") || is_documented && is_attribute || is_documented && code.ends_with(")]");
    }
    found
}

#[test]
fn a_public_item_without_documentation_is_caught() {
    let caught = |text| undocumented("src/a.rs", text).len();
    assert_eq!(caught("pub fn f() {}"), 1);
    assert_eq!(caught("/// What it does.\npub fn f() {}"), 0);
    assert_eq!(caught("/// What it is.\n#[derive(\n    Debug,\n    Clone,\n)]\npub struct S;"), 0);
    assert_eq!(caught("    pub(super) fn f() {}\n    pub name: String,\n    pub const N: u8 = 1;"), 0);
}

#[test]
fn translated_prose_is_caught() {
    for line in [
        "What became of a cancel.",
        "Its id.",
        "Bytes of its own, beside the others",
        "The answer; none: there is no session.",
    ] {
        assert!(is_translated(line), "{line}");
    }
    for line in ["The outcome of a cancel request.", "Returns `None` if nobody_asked is false.", "Its size in bytes."] {
        assert!(!is_translated(line), "{line}");
    }
}
