//! Truncates a tool's output to its limits before it is stored, and marks where it was truncated.

use std::borrow::Cow;

use crate::model::{Keep, OutputLimits};

#[cfg(test)]
mod tests;

/// The marker for truncated output, as the model reads it (feature row D6).
pub const MARKER: &str = "\n\n[Output truncated - exceeded maximum length]";

/// An output within its limits. Characters are Unicode scalar values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedText {
    /// The output, with the marker if it was truncated.
    pub text: String,
    /// Length of the whole output in characters.
    pub original_chars: u32,
    /// Characters kept, without the marker.
    pub kept_chars: u32,
    /// Whether anything was left out.
    pub truncated: bool,
}

/// The text parts of a result within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedTexts {
    /// The original parts, or one part if they were truncated.
    pub texts: Vec<String>,
    /// Length of the joined parts in characters.
    pub original_chars: u32,
    /// Characters kept, without the marker.
    pub kept_chars: u32,
    /// Whether anything was left out.
    pub truncated: bool,
}

/// Truncates an output, in this order: its matches, its lines, each line, and its total characters.
///
/// The marker occurs once: where the middle was left out, or else at the end, even if only long lines were shortened. A
/// limit of `None` does not apply.
pub fn truncate(text: &str, limits: &OutputLimits) -> TruncatedText {
    let keep = limits.keep.unwrap_or_default();
    let span = Span::whole(text).limit(Unit::Match, limits.max_matches, keep).limit(Unit::Line, limits.max_lines, keep);
    let head = clip_lines(span.head, limits.max_line_length);
    let tail = span.tail.map(|tail| clip_lines(tail, limits.max_line_length));
    let clipped =
        head.len() < span.head.len() || tail.as_ref().map_or(0, |tail| tail.len()) < span.tail.map_or(0, str::len);
    let kept = Span { head: &head, tail: tail.as_deref(), truncated: span.truncated || clipped };
    let kept = kept.limit(Unit::Char, limits.max_chars, keep);
    TruncatedText {
        text: kept.render(),
        original_chars: chars(text),
        kept_chars: kept.chars(),
        truncated: kept.truncated,
    }
}

/// Truncates a result of several text parts. The limits apply to the parts as joined by [`join`]. A result within the
/// limits keeps its parts; a truncated result becomes one text.
pub fn truncate_texts(texts: &[String], limits: &OutputLimits) -> TruncatedTexts {
    let TruncatedText { text, original_chars, kept_chars, truncated } = truncate(&join(texts), limits);
    let texts = if truncated { vec![text] } else { texts.to_vec() };
    TruncatedTexts { texts, original_chars, kept_chars, truncated }
}

/// The whole output of a result: its text parts, joined with line breaks.
pub fn join(texts: &[String]) -> Cow<'_, str> {
    match texts {
        [one] => Cow::Borrowed(one),
        several => Cow::Owned(several.join("\n")),
    }
}

/// The kept part of a text: its beginning, and its end if the middle was left out.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    head: &'a str,
    tail: Option<&'a str>,
    truncated: bool,
}

impl<'a> Span<'a> {
    /// The whole text.
    fn whole(text: &'a str) -> Self {
        Self { head: text, tail: None, truncated: false }
    }

    /// Keeps at most `limit` units.
    fn limit(self, unit: Unit, limit: Option<u32>, keep: Keep) -> Self {
        let Some(limit) = limit.map(|limit| limit as usize) else {
            return self;
        };
        let in_head = unit.count(self.head);
        let in_tail = self.tail.map_or(0, |tail| unit.count(tail));
        if in_head + in_tail <= limit {
            return self;
        }
        match keep {
            Keep::Head => Self { head: unit.first(self.head, limit), tail: None, truncated: true },
            Keep::HeadAndTail => self.limit_both(unit, limit, in_head, in_tail),
        }
    }

    /// Keeps half of the limit at each end. If the middle is already missing, an end shorter than its half leaves the
    /// rest to the other end.
    fn limit_both(self, unit: Unit, limit: usize, in_head: usize, in_tail: usize) -> Self {
        let half = limit.div_ceil(2);
        let (head, last, from) = match self.tail {
            None => (half, limit - half, self.head),
            Some(tail) => {
                let head = half.max(limit.saturating_sub(in_tail)).min(in_head);
                (head, limit - head, tail)
            }
        };
        Self { head: unit.first(self.head, head), tail: Some(unit.last(from, last)), truncated: true }
    }

    /// The text for the model.
    fn render(self) -> String {
        match (self.truncated, self.tail) {
            (true, Some(tail)) if !tail.is_empty() => format!("{}{MARKER}\n\n{tail}", self.head),
            (true, Some(_) | None) => format!("{}{MARKER}", self.head),
            (false, _) => self.head.to_owned(),
        }
    }

    /// Characters kept.
    fn chars(self) -> u32 {
        chars(self.head).saturating_add(self.tail.map_or(0, chars))
    }
}

/// The unit of a limit.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Lines that are not empty.
    Match,
    /// Lines; a line break at the very end does not start another line.
    Line,
    /// Unicode scalar values.
    Char,
}

impl Unit {
    /// The number of units in the text.
    fn count(self, text: &str) -> usize {
        match self {
            Self::Match => text.lines().filter(|line| !line.is_empty()).count(),
            Self::Line => text.lines().count(),
            Self::Char => text.chars().count(),
        }
    }

    /// The beginning of the text with at most `limit` units, without the line break after it.
    fn first(self, text: &str, limit: usize) -> &str {
        match self {
            Self::Char => text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end]),
            Self::Match => without_break(&text[..end_of_lines(text.split_inclusive('\n'), limit, is_match)]),
            Self::Line => without_break(&text[..end_of_lines(text.split_inclusive('\n'), limit, |_| true)]),
        }
    }

    /// The end of the text with at most `limit` units.
    fn last(self, text: &str, limit: usize) -> &str {
        match self {
            Self::Char => {
                let start = limit.checked_sub(1).and_then(|last| text.char_indices().nth_back(last));
                let none = if limit == 0 { text.len() } else { 0 };
                &text[start.map_or(none, |(start, _)| start)..]
            }
            Self::Match => &text[text.len() - end_of_lines(text.split_inclusive('\n').rev(), limit, is_match)..],
            Self::Line => &text[text.len() - end_of_lines(text.split_inclusive('\n').rev(), limit, |_| true)..],
        }
    }
}

/// The number of bytes up to and including the last of `limit` lines that count.
fn end_of_lines<'a>(lines: impl Iterator<Item = &'a str>, limit: usize, counts: impl Fn(&str) -> bool) -> usize {
    let mut left = limit;
    lines
        .take_while(|line| {
            let fits = left > 0;
            left = left.saturating_sub(usize::from(counts(line)));
            fits
        })
        .map(str::len)
        .sum()
}

/// Whether a line is not empty apart from its line break.
fn is_match(line: &str) -> bool {
    !without_break(line).is_empty()
}

/// The text without one line break at its end.
fn without_break(text: &str) -> &str {
    text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line))
}

/// Truncates each line to `limit` characters; line breaks are kept.
fn clip_lines(text: &str, limit: Option<u32>) -> Cow<'_, str> {
    let Some(limit) = limit.map(|limit| limit as usize) else {
        return Cow::Borrowed(text);
    };
    let clip = |line| {
        let content = without_break(line);
        [Unit::Char.first(content, limit), &line[content.len()..]]
    };
    Cow::Owned(text.split_inclusive('\n').flat_map(clip).collect())
}

/// Length in characters.
fn chars(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}
