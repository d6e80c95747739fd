//! Breakdown of a window by category, and a forecast of the next compaction.

use super::{
    budget::{BUFFER_WHEN_OFF, Budget},
    estimator::{Estimator, NonTranscript},
    size::{Size, clamp_tokens},
};
use crate::model::{
    Category, CategoryCount, Ledger, PinnedKind, SessionConfig, Tool, ToolCategory, ToolSet,
    ledger::{CategoryTokens, ContextCategory},
};

/// The input of a breakdown.
#[derive(Debug, Clone, Copy)]
pub struct BreakdownInput<'a> {
    pub config: &'a SessionConfig,
    /// Whether tools are sent to its model.
    pub supports_tools: bool,
    /// Configured name of its provider.
    pub provider: &'a str,
    /// The estimator of its model.
    pub estimator: Estimator,
    /// Size of its system prompt and tools.
    pub non_transcript: NonTranscript,
    pub ledger: &'a Ledger,
    /// Its queued messages.
    pub queued: CategoryCount,
    /// The size of its next prompt.
    pub used: u32,
}

/// The breakdown of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakdown {
    /// The tokens by category. Those that are part of the total add up to the size.
    pub shares: Vec<CategoryTokens>,
    /// The messages' share would have been negative and was set to 0.
    pub adjusted: bool,
}

/// Computes the breakdown. The messages get the rest of the size, divided in proportion to their estimates.
pub fn breakdown(whole: &BreakdownInput<'_>) -> Breakdown {
    let BreakdownInput { config, supports_tools, provider, estimator, non_transcript, ledger, queued, used } = *whole;
    let mut rest = instructions(config, estimator, non_transcript.instructions);
    if supports_tools {
        rest.extend(tools(&config.tools, provider, estimator, non_transcript.tools));
    }
    let non_transcript: u32 = rest.iter().map(|share| share.tokens).fold(0, u32::saturating_add);
    let adjusted = non_transcript > used;
    if adjusted {
        scale(&mut rest, used);
    }
    let mut said: Vec<CategoryTokens> =
        CATEGORIES.iter().map(|&category| message_share(category, ledger.count_of(category))).collect();
    scale(&mut said, used.saturating_sub(non_transcript));
    let deferred: Vec<&Tool> = config.tools.tools.iter().filter(|tool| tool.deferred).collect();
    let unseen = [
        CategoryTokens {
            occupant: ContextCategory::DeferredTools,
            tokens: deferred.iter().map(|tool| estimator.tool(tool)).fold(0, u32::saturating_add),
            count: number(deferred.len()),
        },
        CategoryTokens { occupant: ContextCategory::Queued, tokens: clamp_tokens(queued.tokens), count: queued.parts },
    ];
    let shares = rest.into_iter().chain(said).chain(unseen).filter(|share| share.tokens > 0 || share.count > 0);
    Breakdown { shares: merged(shares), adjusted }
}

/// The tools that are sent, with the sizes of their definitions, largest first.
pub fn largest_tools(tools: &ToolSet, supports_tools: bool, estimator: Estimator) -> Vec<(&Tool, u32)> {
    let mut sized: Vec<_> =
        tools.visible().filter(|_| supports_tools).map(|tool| (tool, estimator.tool(tool))).collect();
    sized.sort_by(|(one, size), (other, than)| than.cmp(size).then_with(|| one.name.cmp(&other.name)));
    sized
}

/// A forecast of the next compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The size at which compaction starts; 0 if automatic compaction is off.
    pub threshold: u32,
    /// Tokens at the end of the window that are never filled.
    pub buffer: u32,
    /// Tokens until compaction starts.
    pub remaining_tokens: u32,
    /// Steps until compaction starts. `None` if not known.
    pub steps: Option<u32>,
}

/// Forecasts the next compaction, assuming that the context continues to grow by `growth` tokens per step. `starts_at`:
/// the size at which automatic compaction starts.
pub fn forecast(budget: Budget, starts_at: Option<u32>, size: &Size, growth: Option<f64>) -> Forecast {
    let Some(threshold) = starts_at else {
        return Forecast { threshold: 0, buffer: BUFFER_WHEN_OFF, remaining_tokens: 0, steps: None };
    };
    let until = threshold.saturating_sub(size.at_most());
    let steps = growth.filter(|growth| *growth >= 1.0).map(|growth| (f64::from(until) / growth).ceil());
    Forecast {
        threshold,
        // The first size that is too large is the room plus one token.
        buffer: if threshold > budget.room() { budget.reserve } else { budget.window - threshold.min(budget.window) },
        remaining_tokens: until,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of tokens, divided by at least 1"
        )]
        steps: steps.map(|steps| steps as u32),
    }
}

/// Merges the shares of the same occupant: tools, blocks and messages may have the same one.
fn merged(shares: impl Iterator<Item = CategoryTokens>) -> Vec<CategoryTokens> {
    let mut merged: Vec<CategoryTokens> = Vec::new();
    for share in shares {
        match merged.iter_mut().find(|known| known.occupant == share.occupant) {
            Some(known) => {
                known.tokens = known.tokens.saturating_add(share.tokens);
                known.count = known.count.saturating_add(share.count);
            }
            None => merged.push(share),
        }
    }
    merged
}

/// The occupant of a tool.
pub fn tool_occupant(category: ToolCategory) -> ContextCategory {
    match category {
        ToolCategory::Tools => ContextCategory::Tools,
        ToolCategory::McpTools => ContextCategory::McpTools,
        ToolCategory::Skills => ContextCategory::Skills,
        ToolCategory::Agents => ContextCategory::Agents,
    }
}

fn block_occupant(kind: PinnedKind) -> ContextCategory {
    match kind {
        PinnedKind::Pinned => ContextCategory::Pinned,
        PinnedKind::Memory => ContextCategory::Memory,
        PinnedKind::Skills => ContextCategory::Skills,
        PinnedKind::Agents => ContextCategory::Agents,
    }
}

/// The category in which a part of a message is counted.
pub fn message_occupant(category: Category) -> ContextCategory {
    match category {
        Category::User => ContextCategory::User,
        Category::Assistant => ContextCategory::Assistant,
        Category::Reasoning => ContextCategory::Reasoning,
        Category::ToolCalls => ContextCategory::ToolCalls,
        Category::ToolResults => ContextCategory::ToolResults,
        Category::Media => ContextCategory::Media,
        Category::Summary => ContextCategory::Summary,
        Category::Pinned => ContextCategory::Pinned,
    }
}

const CATEGORIES: [Category; 8] = [
    Category::Summary,
    Category::User,
    Category::Assistant,
    Category::Reasoning,
    Category::ToolCalls,
    Category::ToolResults,
    Category::Media,
    Category::Pinned,
];

fn message_share(category: Category, held: CategoryCount) -> CategoryTokens {
    CategoryTokens { occupant: message_occupant(category), tokens: clamp_tokens(held.tokens), count: held.parts }
}

/// Shares of the system prompt and the pinned blocks, `whole` tokens in total. They are sent as one text; the tokens
/// between its pieces are spread over them. If there are none, the system prompt gets the fixed cost of every prompt.
fn instructions(config: &SessionConfig, estimator: Estimator, whole: u32) -> Vec<CategoryTokens> {
    let mut shares = Vec::new();
    if !config.system_prompt.is_empty() {
        shares.push(CategoryTokens {
            occupant: ContextCategory::SystemPrompt,
            tokens: estimator.instruction(&config.system_prompt),
            count: 1,
        });
    }
    for kind in [PinnedKind::Memory, PinnedKind::Skills, PinnedKind::Agents, PinnedKind::Pinned] {
        let blocks = config.pinned_blocks.iter().filter(|block| block.kind == kind);
        let size = |text: &str| estimator.instruction(text);
        let sizes: Vec<u32> = blocks.map(|block| size(&block.text).saturating_add(size(&block.name))).collect();
        if !sizes.is_empty() {
            let sum = sizes.iter().copied().fold(0, u32::saturating_add);
            shares.push(CategoryTokens { occupant: block_occupant(kind), tokens: sum, count: number(sizes.len()) });
        }
    }
    if shares.is_empty() {
        shares.push(CategoryTokens { occupant: ContextCategory::SystemPrompt, tokens: whole, count: 0 });
    }
    scale(&mut shares, whole);
    shares
}

/// Shares of the tool definitions that are sent, `whole` tokens in total; the provider's own tools count as tools. The
/// text around the definitions is spread over them.
fn tools(tools: &ToolSet, provider: &str, estimator: Estimator, whole: u32) -> Vec<CategoryTokens> {
    let of = |category: ToolCategory| {
        let told = tools.visible().filter(|tool| tool.category == category);
        let own = tools
            .run_by(provider)
            .filter(|_| category == ToolCategory::Tools)
            .map(|json| estimator.provider_tool(json));
        let sizes: Vec<u32> = told.map(|tool| estimator.tool(tool)).chain(own).collect();
        let sum = sizes.iter().copied().fold(0, u32::saturating_add);
        CategoryTokens { occupant: tool_occupant(category), tokens: sum, count: number(sizes.len()) }
    };
    let categories = [ToolCategory::Tools, ToolCategory::McpTools, ToolCategory::Skills, ToolCategory::Agents];
    let mut shares: Vec<CategoryTokens> = categories.into_iter().map(of).filter(|share| share.count > 0).collect();
    scale(&mut shares, whole);
    shares
}

/// Scales the shares so that they add up to `whole` and keep their proportions. If all are 0, the model's text gets
/// everything, because a prompt ends with the opening of the model's response.
fn scale(shares: &mut [CategoryTokens], whole: u32) {
    let sum: u64 = shares.iter().map(|share| u64::from(share.tokens)).sum();
    if sum == 0 {
        let opened = shares.iter().position(|share| share.occupant == ContextCategory::Assistant).unwrap_or(0);
        if let Some(share) = shares.get_mut(opened) {
            share.tokens = whole;
        }
        return;
    }
    let mut seen = 0;
    let mut given = 0;
    for share in shares {
        // Each share is the difference of rounded running sums: the total is exact, and no share is off by more than
        // one.
        seen += u64::from(share.tokens);
        let up_to = u32::try_from((u128::from(seen) * u128::from(whole) + u128::from(sum) / 2) / u128::from(sum))
            .unwrap_or(whole);
        share.tokens = up_to - given;
        given = up_to;
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::{
            prompt,
            size::{ContextSize, Counters},
            template::Template,
            testing,
        },
        model::{PinnedBlock, ToolSet},
    };

    fn non_transcript(config: &SessionConfig, estimator: Estimator) -> NonTranscript {
        estimator.non_transcript(&prompt::system(config), config.tools.visible(), &config.generation)
    }

    fn held(tokens: i64, parts: u32) -> CategoryCount {
        CategoryCount { tokens, parts }
    }

    /// A configuration with a system prompt of 4,000 tokens and tools of 8,000.
    fn config() -> SessionConfig {
        let big = Tool { description: "x".repeat(31_979), ..testing::tool("look") };
        SessionConfig {
            system_prompt: "x".repeat(15_984),
            tools: ToolSet {
                tools: vec![big, Tool { deferred: true, ..testing::tool("later") }],
                ..ToolSet::default()
            },
            ..SessionConfig::default()
        }
    }

    fn tokens_of(breakdown: &Breakdown, occupant: ContextCategory) -> u32 {
        breakdown.shares.iter().filter(|share| share.occupant == occupant).map(|share| share.tokens).sum()
    }

    fn total(breakdown: &Breakdown) -> u32 {
        breakdown.shares.iter().filter(|share| share.in_total()).map(|share| share.tokens).sum()
    }

    /// Rows A6 and A8
    #[test]
    fn message_share_is_the_size_without_system_prompt_and_tools() {
        let config = config();
        let ledger = Ledger { user: held(10_000, 3), tool_results: held(30_000, 7), ..Ledger::default() };
        let queued = held(17, 2);
        let whole = BreakdownInput {
            config: &config,
            supports_tools: true,
            provider: "main",
            estimator: Estimator::Characters,
            non_transcript: non_transcript(&config, Estimator::Characters),
            ledger: &ledger,
            queued,
            used: 52_100,
        };
        let breakdown = breakdown(&whole);
        assert!(!breakdown.adjusted);
        let expected = [
            (ContextCategory::SystemPrompt, 4_000),
            (ContextCategory::Tools, 8_000),
            (ContextCategory::User, 10_025),
            (ContextCategory::ToolResults, 30_075),
            (ContextCategory::DeferredTools, 9),
            (ContextCategory::Queued, 17),
        ];
        for (occupant, tokens) in expected {
            assert_eq!(tokens_of(&breakdown, occupant), tokens, "{occupant:?}");
        }
        assert_eq!((breakdown.shares.len(), total(&breakdown)), (expected.len(), 52_100));
    }

    #[test]
    fn template_overhead_is_not_attributed_to_messages() {
        let told = config();
        let bare = SessionConfig::default();
        let ledger = Ledger { user: held(10_000, 3), ..Ledger::default() };
        for (name, config) in [("gpt-4-chat", &told), ("gpt-4-chat", &bare), ("venice-mistral", &bare)] {
            let estimator = Estimator::of(Template::named(name).unwrap());
            let queued = CategoryCount::default();
            let non_transcript = non_transcript(config, estimator);
            let whole = BreakdownInput {
                config,
                supports_tools: true,
                provider: "main",
                estimator,
                non_transcript,
                ledger: &ledger,
                queued,
                used: 30_000,
            };
            let breakdown = breakdown(&whole);
            let hidden =
                (tokens_of(&breakdown, ContextCategory::SystemPrompt), tokens_of(&breakdown, ContextCategory::Tools));
            let prompts =
                breakdown.shares.iter().find(|share| share.occupant == ContextCategory::SystemPrompt).unwrap().count;
            assert_eq!(
                prompts,
                u32::from(!config.system_prompt.is_empty()),
                "{name}: none of the session's own is none"
            );
            assert_eq!(
                (hidden, total(&breakdown)),
                ((non_transcript.instructions, non_transcript.tools), 30_000),
                "{name}"
            );
        }
        let hidden = non_transcript(&bare, Estimator::of(Template::named("venice-mistral").unwrap()));
        assert!(hidden.instructions > 1_000 && hidden.tools == 0, "a system prompt of the service's own: {hidden:?}");
    }

    #[test]
    fn categories_are_shown_only_if_they_have_parts() {
        let config = SessionConfig::default();
        let ledger = Ledger { user: held(100, 1), media: held(0, 2), ..Ledger::default() };
        let queued = CategoryCount::default();
        let estimator = Estimator::Characters;
        let non_transcript = non_transcript(&config, estimator);
        let whole = BreakdownInput {
            config: &config,
            supports_tools: true,
            provider: "main",
            estimator,
            non_transcript,
            ledger: &ledger,
            queued,
            used: 100,
        };
        let shown: Vec<_> = breakdown(&whole).shares.into_iter().map(|it| (it.occupant, it.tokens, it.count)).collect();
        assert_eq!(shown, [(ContextCategory::User, 100, 1), (ContextCategory::Media, 0, 2)]);
    }

    /// Row A6
    #[test]
    fn a_negative_message_share_is_zero_and_reported() {
        let config = config();
        let ledger = Ledger { user: held(10, 1), ..Ledger::default() };
        let whole = BreakdownInput {
            config: &config,
            supports_tools: true,
            provider: "main",
            estimator: Estimator::Characters,
            non_transcript: non_transcript(&config, Estimator::Characters),
            ledger: &ledger,
            queued: CategoryCount::default(),
            used: 6_000,
        };
        let breakdown = breakdown(&whole);
        assert!(breakdown.adjusted);
        assert_eq!(tokens_of(&breakdown, ContextCategory::SystemPrompt), 2_000);
        assert_eq!(tokens_of(&breakdown, ContextCategory::User), 0);
        assert_eq!(total(&breakdown), 6_000);
    }

    /// Row A10
    #[test]
    fn blocks_and_tools_are_counted_by_tag_and_hidden_ones_are_not() {
        let block = |name: &str, kind| PinnedBlock { name: name.to_owned(), text: "x".repeat(400), kind };
        let tool = |name: &str, category| Tool { category, ..testing::tool(name) };
        let config = SessionConfig {
            pinned_blocks: vec![
                block("a", PinnedKind::Memory),
                block("b", PinnedKind::Skills),
                block("c", PinnedKind::Pinned),
            ],
            tools: ToolSet {
                tools: vec![tool("m", ToolCategory::McpTools), tool("g", ToolCategory::Agents)],
                ..ToolSet::default()
            },
            ..SessionConfig::default()
        };
        let ledger = Ledger::default();
        let untold = Estimator::Characters.non_transcript(&prompt::system(&config), [], &config.generation);
        let of = |supports_tools| {
            breakdown(&BreakdownInput {
                config: &config,
                supports_tools,
                provider: "main",
                estimator: Estimator::Characters,
                non_transcript: if supports_tools { non_transcript(&config, Estimator::Characters) } else { untold },
                ledger: &ledger,
                queued: CategoryCount::default(),
                used: 1_000,
            })
        };
        let seen = of(true);
        for occupant in [ContextCategory::Memory, ContextCategory::Skills, ContextCategory::Pinned] {
            assert!((100..=104).contains(&tokens_of(&seen, occupant)), "{occupant:?}: {seen:?}");
        }
        assert!(tokens_of(&seen, ContextCategory::McpTools) > 0);
        assert!(tokens_of(&seen, ContextCategory::Agents) > 0);
        assert_eq!(tokens_of(&of(false), ContextCategory::McpTools), 0, "a model without tools gets none");
    }

    #[test]
    fn forecast_extrapolates_the_growth_of_the_last_steps() {
        let budget = Budget { window: 200_000, reserve: 16_000, assumed: false };
        let counters = Counters { transcript_tokens: 52_100, context_version: 0, anchor: None };
        let used = ContextSize::new(counters, "main/m", 0, NonTranscript::default()).size();
        let on = |starts_at, growth| forecast(budget, starts_at, &used, growth);
        let left = 184_001 - (52_100 + 5_210);
        assert_eq!(
            on(Some(184_001), None),
            Forecast { threshold: 184_001, buffer: 16_000, remaining_tokens: left, steps: None }
        );
        assert_eq!(on(Some(184_001), Some(1_000.0)).steps, Some(127));
        assert_eq!(on(Some(184_001), Some(0.0)).steps, None, "what does not grow has no end");
        assert_eq!(on(Some(100_000), None).buffer, 100_000);
        assert_eq!(
            on(Some(50_000), Some(10.0)),
            Forecast { threshold: 50_000, buffer: 150_000, remaining_tokens: 0, steps: Some(0) }
        );
        assert_eq!(on(None, Some(10.0)), Forecast { threshold: 0, buffer: 500, remaining_tokens: 0, steps: None });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row A6
        #[test]
        fn the_shares_add_up_to_the_size(
            sizes in proptest::collection::vec(0_i64..100_000, 8), system in 0_usize..9_000, tools in 0_usize..5, used in 3_u32..500_000,
            family in proptest::sample::select(&["none", "gpt-4-chat", "venice-mistral"]),
        ) {
            let estimator = Template::named(family).map_or(Estimator::Characters, Estimator::of);
            let mut held = sizes.iter().map(|&tokens| CategoryCount { tokens, parts: u32::from(tokens > 0) });
            let mut next = || held.next().unwrap_or_default();
            let ledger = Ledger {
                user: next(), assistant: next(), reasoning: next(), tool_calls: next(), tool_results: next(), media: next(),
                summary: next(), pinned: next(), ..Ledger::default()
            };
            let named = |n: usize| testing::tool(&format!("t{n}"));
            let config = SessionConfig {
                system_prompt: "x".repeat(system),
                tools: ToolSet { tools: (0..tools).map(named).collect(), ..ToolSet::default() },
                ..SessionConfig::default()
            };
            let queued = CategoryCount::default();
            let non_transcript = non_transcript(&config, estimator);
            let whole = BreakdownInput { config: &config, supports_tools: true, provider: "main", estimator, non_transcript, ledger: &ledger, queued, used };
            let breakdown = breakdown(&whole);
            prop_assert_eq!(total(&breakdown), used);
            prop_assert_eq!(breakdown.adjusted, non_transcript.instructions + non_transcript.tools > used);
        }
    }
}
