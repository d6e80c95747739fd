//! Renders a conversation as text for the model that summarizes it.

use crate::{
    context::{estimate, truncate::truncate},
    model::{
        Content, Keep, Message, OutputLimits, Role, ToolOutcome, ToolResult,
        message::{OutputPart, StoredPart},
    },
};

/// Maximum number of characters of a tool result (feature row S9).
const RESULT_CHARS: usize = 500;
/// Minimum number of characters per message in an excerpt: fewer do not show what the message is about.
const MIN_EXCERPT_CHARS: u32 = 400;
/// Upper bound of the average number of characters per token in any language; limits the length of an excerpt.
const CHARS_PER_TOKEN: u32 = 8;
/// The first line of an excerpt.
const EXCERPT_NOTE: &str = "[What follows did not fit the context window and is shown in part]";

/// Renders the messages as texts of at most `most` tokens each; messages without content are skipped. Text of users and
/// of the model is never truncated, only split.
pub fn pieces<'a>(messages: impl Iterator<Item = &'a Message>, most: u32) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for text in messages.filter_map(text).flat_map(|text| split_text(&text, most)) {
        match pieces.last_mut() {
            Some(last) if estimate::text(last).saturating_add(estimate::text(&text)).saturating_add(1) <= most => {
                last.push_str("\n\n");
                last.push_str(&text);
            }
            Some(_) | None => pieces.push(text),
        }
    }
    pieces
}

/// Renders the messages as one text of at most `most` tokens: each message is truncated to the same length, keeping its
/// beginning and its end. `before` is the summary of the messages before them, which is truncated in the same way.
/// Returns `None` if there are too many messages to show enough of each.
pub fn excerpt<'a>(before: Option<&str>, messages: impl Iterator<Item = &'a Message>, most: u32) -> Option<String> {
    let longest = most.saturating_mul(CHARS_PER_TOKEN).max(MIN_EXCERPT_CHARS);
    let texts =
        before.map(str::to_owned).into_iter().chain(messages.filter_map(|message| text_with(message, usize::MAX)));
    let texts: Vec<String> = texts.map(|text| shown(&text, longest)).collect();
    let all = |chars| {
        let shown = texts.iter().map(|text| shown(text, chars));
        let parts = std::iter::once(EXCERPT_NOTE.to_owned()).chain(shown);
        Some(parts.collect::<Vec<_>>().join("\n\n")).filter(|text| estimate::text(text) <= most)
    };
    let mut found = all(MIN_EXCERPT_CHARS)?;
    // Binary search for the largest number of characters that fits: `least` fits, `over` does not.
    let (mut least, mut over) = (MIN_EXCERPT_CHARS, longest.saturating_add(1));
    while over - least > MIN_EXCERPT_CHARS / 10 {
        let middle = least + (over - least) / 2;
        match all(middle) {
            Some(text) => (found, least) = (text, middle),
            None => over = middle,
        }
    }
    Some(found)
}

/// A note that messages are left out, after the previous summary, of which at most `most` tokens are kept.
pub fn omission_note(before: Option<&str>, messages: usize, most: u32) -> String {
    let note = format!("[{messages} messages were left out: they did not fit the context window]");
    let before = before.and_then(|before| {
        if estimate::text(before) <= most {
            Some(before.to_owned())
        } else {
            excerpt(Some(before), std::iter::empty(), most)
        }
    });
    let parts = before.into_iter().chain([note]);
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The text, truncated to a number of characters.
fn shown(text: &str, chars: u32) -> String {
    let limits = OutputLimits { max_chars: Some(chars), keep: Some(Keep::HeadAndTail), ..OutputLimits::default() };
    truncate(text, &limits).text
}

/// A message as text. Returns `None` if it has no content for a summary.
fn text(message: &Message) -> Option<String> {
    text_with(message, RESULT_CHARS)
}

/// Like [`text`], with this many characters of a tool result.
fn text_with(message: &Message, result_chars: usize) -> Option<String> {
    let said = message.parts.iter();
    let said: Vec<String> = said.filter_map(|it| part(it, result_chars)).collect();
    let speaker = match message.role {
        Role::System => "System:",
        Role::User => "User:",
        Role::Assistant => "Assistant:",
        Role::Tool => return (!said.is_empty()).then(|| said.join("\n")),
    };
    (!said.is_empty()).then(|| format!("{speaker}\n{}", said.join("\n")))
}

fn part(stored: &StoredPart, result_chars: usize) -> Option<String> {
    match &stored.part.content {
        Content::Text(text) | Content::Refusal(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Content::Reasoning { .. } | Content::Unknown(_) => None,
        Content::ProviderItem(item) => (!item.title.is_empty()).then(|| format!("[{}]", item.title)),
        Content::Media(media) => Some(format!("[{}]", media.title())),
        Content::ToolCall(call) => Some(format!("[Called {} with: {}]", call.name, call.arguments)),
        Content::ToolResult(result) => {
            let how = match result.outcome {
                ToolOutcome::Success => "result",
                ToolOutcome::Error => "error",
                ToolOutcome::Denied => "denied",
                ToolOutcome::TimedOut => "timed out",
                ToolOutcome::Cancelled => "cancelled",
            };
            let words = match &stored.pruned {
                Some(_) => "(cleared)".to_owned(),
                None => shortened(&output_text(result), result_chars),
            };
            Some(format!("[{} {how}: {words}]", result.name))
        }
    }
}

/// The output of a tool: its texts, and the names of its media.
fn output_text(result: &ToolResult) -> String {
    let pieces = result.parts.iter().map(|given| match given {
        OutputPart::Text(text) => text.clone(),
        OutputPart::Media(media) => format!("[{}]", media.title()),
    });
    pieces.collect::<Vec<_>>().join("\n")
}

/// The beginning of a text, and the number of characters left out.
fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}... ({more} more characters)", &text[..end])
        }
    }
}

/// Splits a text into parts of at most `most` tokens, in any script.
fn split_text(text: &str, most: u32) -> Vec<String> {
    if estimate::text(text) <= most {
        return vec![text.to_owned()];
    }
    // A character counts as at most 1.3 tokens.
    let chars = (most as usize * 3 / 4).max(1);
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(chars).map(|some| some.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::testing::{assistant, calls, message, results, user},
        model::{Part, message::Pruned},
    };

    fn check(message: &Message, expected: Option<&str>) {
        assert_eq!(text(message).as_deref(), expected);
    }

    /// Rows S9 and S13
    #[test]
    fn digest_lists_messages_with_their_role() {
        check(&user("Hello"), Some("User:\nHello"));
        check(&assistant("Hi"), Some("Assistant:\nHi"));
        check(&assistant("  "), None);
        check(&calls(&["look", "read"]), Some("Assistant:\n[Called look with: {}]\n[Called read with: {}]"));
        check(&results(&[("look", "blue"), ("read", "")]), Some("[look result: blue]\n[read result: ]"));
        let thought = Part::new(Content::Reasoning { text: "hmm".into(), redacted: false });
        check(&message(Role::Assistant, vec![thought.clone()]), None);
        check(&message(Role::Assistant, vec![thought, Part::text("So.")]), Some("Assistant:\nSo."));
    }

    /// Row S9
    #[test]
    fn digest_truncates_results_and_marks_cleared_ones() {
        let long = "é".repeat(501);
        check(
            &results(&[("look", &long)]),
            Some(&format!("[look result: {}... (1 more characters)]", "é".repeat(500))),
        );
        check(&results(&[("look", &long[..1_000])]), Some(&format!("[look result: {}]", "é".repeat(500))));
        let mut cleared = results(&[("look", "blue")]);
        cleared.parts[0].pruned = Some(Pruned { at: crate::model::Seq(9), time: None, original_tokens: 1 });
        check(&cleared, Some("[look result: (cleared)]"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row S9
        #[test]
        fn digest_pieces_fit_and_are_complete(words in proptest::collection::vec("[a-zé語]{0,400}", 1..20), most in 40_u32..400) {
            let messages: Vec<Message> = words.iter().map(|words| user(words)).collect();
            let pieces = pieces(messages.iter(), most);
            prop_assert!(pieces.iter().all(|piece| estimate::text(piece) <= most));
            let letters = |text: &str| text.replace("User:", "").replace('\n', "");
            prop_assert_eq!(letters(&pieces.concat()), letters(&words.concat()));
        }
    }
}
