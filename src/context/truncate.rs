//! Cuts a tool's output to its limits before it is stored, with a marker that says so.

use std::borrow::Cow;

use crate::model::{Keep, OutputLimits};

#[cfg(test)]
mod tests;

/// What the model reads where output was cut (feature row D6).
pub const MARKER: &str = "\n\n[Output truncated - exceeded maximum length]";

/// An output within its limits. Characters are Unicode scalar values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The output, with the marker if it was cut.
    pub text: String,
    /// Length of the whole output in characters.
    pub original_chars: u32,
    /// Characters kept, the marker left out.
    pub kept_chars: u32,
    /// Whether anything was left out.
    pub truncated: bool,
}

/// The text parts of a result within the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTexts {
    /// The parts as they were, or one part when they were cut.
    pub texts: Vec<String>,
    /// Length of the joined parts in characters.
    pub original_chars: u32,
    /// Characters kept, the marker left out.
    pub kept_chars: u32,
    /// Whether anything was left out.
    pub truncated: bool,
}

/// Cuts an output: first to its matches, then to its lines, then each line, then all characters.
///
/// The marker stands once: where the middle was left out, else at the end, also when only long
/// lines were shortened. A limit that is none does not apply.
pub fn cut(text: &str, limits: &OutputLimits) -> Cut {
    let keep = limits.keep.unwrap_or_default();
    let span = Span::whole(text)
        .limit(Unit::Match, limits.max_matches, keep)
        .limit(Unit::Line, limits.max_lines, keep);
    let head = clip_lines(span.head, limits.max_line_length);
    let tail = span
        .tail
        .map(|tail| clip_lines(tail, limits.max_line_length));
    let clipped = head.len() < span.head.len()
        || tail.as_ref().map_or(0, |tail| tail.len()) < span.tail.map_or(0, str::len);
    let kept = Span {
        head: &head,
        tail: tail.as_deref(),
        cut: span.cut || clipped,
    };
    let kept = kept.limit(Unit::Char, limits.max_chars, keep);
    Cut {
        text: kept.render(),
        original_chars: chars(text),
        kept_chars: kept.chars(),
        truncated: kept.cut,
    }
}

/// Cuts a result of several text parts: the limits apply to the parts joined as by [`join`]. Within
/// the limits the parts stay as they are; a result that has to be cut becomes one text.
pub fn cut_texts(texts: &[String], limits: &OutputLimits) -> CutTexts {
    let Cut {
        text,
        original_chars,
        kept_chars,
        truncated,
    } = cut(&join(texts), limits);
    let texts = if truncated {
        vec![text]
    } else {
        texts.to_vec()
    };
    CutTexts {
        texts,
        original_chars,
        kept_chars,
        truncated,
    }
}

/// The whole output of a result: its text parts, each on a line of its own.
pub fn join(texts: &[String]) -> Cow<'_, str> {
    match texts {
        [one] => Cow::Borrowed(one),
        several => Cow::Owned(several.join("\n")),
    }
}

/// What is kept of a text: its beginning, and its end when the middle was left out.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    head: &'a str,
    tail: Option<&'a str>,
    cut: bool,
}

impl<'a> Span<'a> {
    /// All of it.
    fn whole(text: &'a str) -> Self {
        Self {
            head: text,
            tail: None,
            cut: false,
        }
    }

    /// At most so many units of it.
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
            Keep::Head => Self {
                head: unit.first(self.head, limit),
                tail: None,
                cut: true,
            },
            Keep::HeadAndTail => self.limit_both(unit, limit, in_head, in_tail),
        }
    }

    /// Half of the limit from each end. A middle that is missing already stays where it is: an end
    /// that holds less than its half leaves the rest to the other.
    fn limit_both(self, unit: Unit, limit: usize, in_head: usize, in_tail: usize) -> Self {
        let half = limit.div_ceil(2);
        let (head, last, from) = match self.tail {
            None => (half, limit - half, self.head),
            Some(tail) => {
                let head = half.max(limit.saturating_sub(in_tail)).min(in_head);
                (head, limit - head, tail)
            }
        };
        Self {
            head: unit.first(self.head, head),
            tail: Some(unit.last(from, last)),
            cut: true,
        }
    }

    /// The text that the model reads.
    fn render(self) -> String {
        match (self.cut, self.tail) {
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

/// What a limit counts.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Lines with something in them.
    Match,
    /// Lines; a line break at the very end does not begin another.
    Line,
    /// Unicode scalar values.
    Char,
}

impl Unit {
    /// How many the text holds.
    fn count(self, text: &str) -> usize {
        match self {
            Self::Match => text.lines().filter(|line| !line.is_empty()).count(),
            Self::Line => text.lines().count(),
            Self::Char => text.chars().count(),
        }
    }

    /// The beginning of the text with so many of them, without the line break after it.
    fn first(self, text: &str, limit: usize) -> &str {
        match self {
            Self::Char => text
                .char_indices()
                .nth(limit)
                .map_or(text, |(end, _)| &text[..end]),
            Self::Match => {
                without_break(&text[..end_of_lines(text.split_inclusive('\n'), limit, is_match)])
            }
            Self::Line => {
                without_break(&text[..end_of_lines(text.split_inclusive('\n'), limit, |_| true)])
            }
        }
    }

    /// The end of the text with so many of them.
    fn last(self, text: &str, limit: usize) -> &str {
        match self {
            Self::Char => {
                let start = limit
                    .checked_sub(1)
                    .and_then(|last| text.char_indices().nth_back(last));
                let none = if limit == 0 { text.len() } else { 0 };
                &text[start.map_or(none, |(start, _)| start)..]
            }
            Self::Match => {
                &text
                    [text.len() - end_of_lines(text.split_inclusive('\n').rev(), limit, is_match)..]
            }
            Self::Line => {
                &text
                    [text.len() - end_of_lines(text.split_inclusive('\n').rev(), limit, |_| true)..]
            }
        }
    }
}

/// The bytes of the lines up to the limit's last one that counts.
fn end_of_lines<'a>(
    lines: impl Iterator<Item = &'a str>,
    limit: usize,
    counts: impl Fn(&str) -> bool,
) -> usize {
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

/// Whether a line, its break included, has something in it.
fn is_match(line: &str) -> bool {
    !without_break(line).is_empty()
}

/// The text without one line break at its end.
fn without_break(text: &str) -> &str {
    text.strip_suffix('\n')
        .map_or(text, |line| line.strip_suffix('\r').unwrap_or(line))
}

/// Each line cut to so many characters; the line breaks stay.
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
