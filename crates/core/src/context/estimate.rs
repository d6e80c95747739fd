//! Estimates sizes in tokens from the number of characters alone.

use super::{media, template::ImageCost};
use crate::model::{
    Category, ClosedTranscript, Content, Message, Part, PartSize, Role, Tally, TokenBasis, TokenCount, Tool, ToolResult,
};

/// The estimator's name as stored with the counts.
pub const ESTIMATOR: &str = "heuristic";

/// Tokens of a message in addition to its text: role and delimiters (feature row S5).
pub const MESSAGE_OVERHEAD: u32 = 4;

/// Tokens that open the model's response, once per prompt.
pub const REPLY_PRIMING: u32 = 3;

/// The margin is one part in this many of the tokens: 10%.
const MARGIN_DIVISOR: u32 = 10;

/// Size of a text.
pub fn text(text: &str) -> u32 {
    Tally::default().plus(text).tokens()
}

/// Size of a part. Metadata attached by a provider is opaque and not counted.
pub fn part(part: &Part, role: Role) -> PartSize {
    let tokens = match &part.content {
        Content::Media(medium) => media::tokens(medium, ImageCost::default()),
        Content::ToolResult(result) => self::result(result),
        Content::Text(text) | Content::Refusal(text) | Content::Reasoning { text, redacted: _ } => self::text(text),
        Content::ToolCall(call) => Tally::default().plus(&call.name).plus(&call.arguments).tokens(),
        Content::ProviderItem(item) => self::text(&item.json),
        Content::Unknown(_) => 0,
    };
    PartSize { tokens, category: category(&part.content, role) }
}

/// The category of a part. System messages inside the conversation count as user text.
pub fn category(content: &Content, role: Role) -> Category {
    match content {
        Content::Text(_) | Content::Unknown(_) => match role {
            Role::System | Role::User => Category::User,
            Role::Assistant => Category::Assistant,
            Role::Tool => Category::ToolResults,
        },
        Content::Refusal(_) | Content::ProviderItem(_) => Category::Assistant,
        Content::Reasoning { .. } => Category::Reasoning,
        Content::ToolCall(_) => Category::ToolCalls,
        Content::ToolResult(_) => Category::ToolResults,
        Content::Media(_) => Category::Media,
    }
}

/// Size of a tool result: its texts and its media.
fn result(result: &ToolResult) -> u32 {
    let words = result.texts().fold(Tally::default(), |tally, text| tally.plus(text)).tokens();
    result.media().map(|medium| media::tokens(medium, ImageCost::default())).fold(words, u32::saturating_add)
}

/// Size of a message: its parts and its overhead.
pub fn message(message: &Message) -> u32 {
    message
        .parts
        .iter()
        .map(|stored| part(&stored.part, message.role).tokens)
        .fold(MESSAGE_OVERHEAD, u32::saturating_add)
}

/// Size of the system prompt; 0 if it is empty.
pub fn system(system: &str) -> u32 {
    if system.is_empty() { 0 } else { text(system).saturating_add(MESSAGE_OVERHEAD) }
}

/// Size of a tool definition: name, description and schema.
pub fn tool(tool: &Tool) -> u32 {
    Tally::default().plus(&tool.name).plus(&tool.description).plus(tool.input_schema.as_deref().unwrap_or("")).tokens()
}

/// Size of the complete prompt of one call.
pub fn prompt(instructions: &str, tools: &[Tool], transcript: &ClosedTranscript) -> TokenCount {
    let tools = tools.iter().map(tool);
    let messages = transcript.messages().iter().map(message);
    let tokens = tools.chain(messages).fold(system(instructions), u32::saturating_add).saturating_add(REPLY_PRIMING);
    count(tokens)
}

/// A token count with this estimator's margin and name.
pub fn count(tokens: u32) -> TokenCount {
    TokenCount {
        tokens,
        basis: TokenBasis::Heuristic,
        margin: tokens.div_ceil(MARGIN_DIVISOR),
        estimator: ESTIMATOR.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::testing,
        model::{CallId, ToolCall, ToolOutcome, ToolResult},
    };

    #[test]
    fn ascii_costs_a_quarter_and_other_scripts_more_than_one() {
        let table = [
            ("", 0),
            ("a", 1),
            ("abcd", 1),
            ("abcde", 2),
            ("Hello, world!", 4), // 13 x 0.25 = 3.25
            ("日本語", 4),        // 3 x 1.3 = 3.9
            ("日本語です。", 8),  // 6 x 1.3 = 7.8
            ("é", 2),             // 1.3
            ("🎉", 2),            // one scalar value
            ("👩‍👩‍👧", 7),            // five scalar values: three faces, two joiners
            ("18 °C", 3),         // 4 x 0.25 + 1.3 = 2.3
            ("\0\n\t\u{7f}", 1),
        ];
        for (input, expected) in table {
            assert_eq!(text(input), expected, "{input:?}");
        }
    }

    #[test]
    fn estimating_a_megabyte_is_exact() {
        assert_eq!(text(&"a".repeat(1_000_000)), 250_000);
        assert_eq!(text(&"語".repeat(1_000_000)), 1_300_000);
    }

    #[test]
    fn each_kind_of_part_has_its_category() {
        let call = ToolCall { id: CallId::new("c1"), name: "read".into(), arguments: r#"{"a":1}"#.into() };
        let result = ToolResult {
            call: CallId::new("c1"),
            name: "read".into(),
            parts: vec!["abc".into(), "de".into()],
            outcome: ToolOutcome::Success,
            truncation: None,
            display_text: String::new(),
        };
        let reasoning = Content::Reasoning { text: "hmm!".into(), redacted: false };
        let table = [
            (Part::text("abcd"), Role::User, 1, Category::User),
            (Part::text("abcd"), Role::System, 1, Category::User),
            (Part::text("abcd"), Role::Assistant, 1, Category::Assistant),
            (Part::text("abcd"), Role::Tool, 1, Category::ToolResults),
            (Part::new(Content::Refusal("no".into())), Role::Assistant, 1, Category::Assistant),
            (Part::new(reasoning), Role::Assistant, 1, Category::Reasoning),
            (Part::new(Content::ToolCall(call)), Role::Assistant, 3, Category::ToolCalls), // 11 characters
            (Part::new(Content::ToolResult(result)), Role::Tool, 2, Category::ToolResults), // 5 characters
        ];
        for (input, role, tokens, category) in table {
            assert_eq!(part(&input, role), PartSize { tokens, category }, "{input:?}");
        }
    }

    #[test]
    fn a_prompt_is_system_tools_messages_and_priming() {
        let said = testing::closed(vec![testing::user("abcd"), testing::assistant("abcdefgh")]);
        assert_eq!(prompt("", &[], &said).tokens, (4 + 1) + (4 + 2) + 3);

        let tools = [testing::tool("look")]; // "look" + "Does look." + {"type":"object"}: 31 characters
        let count = prompt("12345678", &tools, &said);
        assert_eq!(count.tokens, 14 + (4 + 2) + 8);
        assert_eq!((count.margin, count.basis), (3, TokenBasis::Heuristic));
        assert_eq!(count.estimator, ESTIMATOR);
    }

    #[test]
    fn an_empty_prompt_costs_only_the_priming() {
        let count = prompt("", &[], &testing::closed(vec![]));
        assert_eq!((count.tokens, count.margin), (3, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        #[test]
        fn appending_text_never_lowers_its_estimate(before in any::<String>(), after in any::<String>()) {
            let whole = format!("{before}{after}");
            prop_assert!(text(&whole) >= text(&before));
            prop_assert!(text(&whole) <= text(&before) + text(&after));
            prop_assert_eq!(text(&whole), Tally::default().plus(&before).plus(&after).tokens());
        }
    }
}
