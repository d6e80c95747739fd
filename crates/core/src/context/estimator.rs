//! Counts stored parts as the session's model will read them.

use std::borrow::Cow;

use super::{
    estimate, media,
    template::{ImageCost, Template, Term, Terms},
};
use crate::model::{Content, Generation, Part, PartSize, Role, Tool, Usage, message::StoredPart};

/// A method of counting. Counts are stored with its name and do not change if the session switches to another model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimator {
    /// By the number of characters, because the model's family is not known.
    Characters,
    /// With a family's vocabulary and costs.
    Family(&'static Template),
}

/// Size of the prompt without its transcript, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NonTranscript {
    /// The system prompt, and the fixed cost of every prompt.
    pub instructions: u32,
    /// The tool definitions, and the text around them.
    pub tools: u32,
    /// The opening of the model's response, if it is not included in the rest.
    pub priming: u32,
}

/// How much of a response's reasoning later prompts contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptReasoning {
    Nothing,
    All,
}

/// If report and estimate of a text differ by more than this factor, the estimate is used: the report then includes
/// something else, such as reasoning that is not reported separately.
const MAX_DEVIATION_FACTOR: u32 = 2;

/// Difference in tokens that is always tolerated for short responses: the report includes the end-of-response tokens.
const MIN_DEVIATION_TOKENS: u32 = 8;

impl NonTranscript {
    /// Adds the definitions of tools that the provider runs.
    #[must_use]
    pub fn with_provider_tools(self, estimator: Estimator, definitions: &[&str]) -> Self {
        let sizes = definitions.iter().map(|json| estimator.provider_tool(json));
        Self { tools: sizes.fold(self.tools, u32::saturating_add), ..self }
    }

    /// The total.
    pub fn tokens(self) -> u32 {
        self.instructions.saturating_add(self.tools).saturating_add(self.priming)
    }
}

impl Estimator {
    /// The estimator for models of a template.
    pub fn of(template: &'static Template) -> Self {
        if template.is_of_a_family() { Self::Family(template) } else { Self::Characters }
    }

    /// The name that is stored with counts.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Characters => Cow::Borrowed(estimate::ESTIMATOR),
            Self::Family(template) => Cow::Owned(template.estimator()),
        }
    }

    /// Whether it counts immediately. If not, the first count loads the vocabulary.
    pub fn is_loaded(self) -> bool {
        match self {
            Self::Characters => true,
            Self::Family(template) => template.counter().is_loaded(),
        }
    }

    /// Size of a part. Media count with an average cost; that amount is subtracted again if a model does not support
    /// them.
    pub fn part(self, part: &Part, role: Role) -> PartSize {
        match self {
            Self::Characters => estimate::part(part, role),
            Self::Family(template) => {
                let media = part.media().map(|medium| f64::from(media::tokens(medium, ImageCost::default()))).sum();
                let mut terms = template.terms_of_part(part, role);
                terms.set(Term::Media, media);
                PartSize { tokens: template.costs.of(&terms), category: estimate::category(&part.content, role) }
            }
        }
    }

    /// Size of a text in a tool result.
    pub fn output(self, text: &str) -> u32 {
        match self {
            Self::Characters => estimate::text(text),
            Self::Family(template) => template.counter().text(text),
        }
    }

    /// Size of the prompt without its transcript: the system prompt, the definitions of the tools that are sent, and
    /// the text around them.
    pub fn non_transcript<'a>(
        self,
        system: &str,
        tools: impl IntoIterator<Item = &'a Tool>,
        generation: &Generation,
    ) -> NonTranscript {
        match self {
            Self::Characters => {
                let tools = tools.into_iter().map(estimate::tool).fold(0, u32::saturating_add);
                NonTranscript { instructions: estimate::system(system), tools, priming: estimate::REPLY_PRIMING }
            }
            Self::Family(template) => {
                let whole = template.costs.of(&template.non_transcript_terms(system, tools, generation));
                let instructions = template.costs.of(&template.terms_of_instructions(system, generation)).min(whole);
                NonTranscript { instructions, tools: whole - instructions, priming: 0 }
            }
        }
    }

    /// Whether all of that was counted before, so that counting it again takes no time.
    pub fn has_counted<'a>(self, system: &str, tools: impl IntoIterator<Item = &'a Tool>) -> bool {
        match self {
            Self::Characters => true,
            Self::Family(template) => template.has_counted(system, tools),
        }
    }

    /// Size of a tool definition, without the text around all definitions.
    pub fn tool(self, tool: &Tool) -> u32 {
        match self {
            Self::Characters => estimate::tool(tool),
            Self::Family(template) => template.costs.of(&template.terms_of_tool(tool)),
        }
    }

    /// Size of the definition of a tool that the provider runs, as sent. The tokens that the service adds for it are
    /// not known before a call was measured.
    pub fn provider_tool(self, definition: &str) -> u32 {
        self.instruction(definition)
    }

    /// Size of a text in the system prompt.
    pub fn instruction(self, text: &str) -> u32 {
        match self {
            Self::Characters => estimate::text(text),
            Self::Family(template) => template.costs.of(&Terms::some(Term::Text, template.memoized_tokens(text))),
        }
    }

    /// Tokens that a response has in later prompts in addition to the reported ones: the frame of its message. Row A3
    /// leaves it out if only characters are counted.
    pub fn frame(self) -> u32 {
        match self {
            Self::Characters => 0,
            Self::Family(_) => self.overhead(Role::Assistant, []),
        }
    }

    /// Size of a response in later prompts, without the frame of its message. The provider reports what the model
    /// wrote, not what a later prompt contains: calls are written in another form there, and the end-of-response tokens
    /// are not repeated. So calls are estimated, and also texts if they are counted with the family's own vocabulary.
    /// If only characters are counted, the reported size is used (row A3).
    pub fn response(self, parts: &[StoredPart], usage: &Usage, kept: KeptReasoning) -> u32 {
        let reported = match kept {
            KeptReasoning::All => usage.output,
            KeptReasoning::Nothing => usage.output.saturating_sub(usage.reasoning),
        };
        let Self::Family(template) = self else {
            return reported;
        };
        let reported = reported.saturating_sub(template.answer_end);
        let (mut said, mut reasoning, mut calls) = (0_u32, 0_u32, 0_u32);
        for stored in parts {
            match &stored.part.content {
                Content::Text(_) | Content::Refusal(_) => {
                    said = said.saturating_add(stored.size.tokens);
                }
                Content::ToolCall(_) => {
                    said = said.saturating_add(stored.size.tokens);
                    calls += 1;
                }
                Content::Reasoning { .. } => {
                    reasoning = reasoning.saturating_add(stored.size.tokens);
                }
                // Only the service knows how these are counted.
                Content::Media(_) | Content::ProviderItem(_) | Content::ToolResult(_) | Content::Unknown(_) => {
                    return reported;
                }
            }
        }
        let parallel =
            self.overhead(Role::Assistant, parts.iter().map(|stored| &stored.part)).saturating_sub(self.frame());
        let said = said.saturating_add(parallel);
        let reasoning = match kept {
            KeptReasoning::Nothing => 0,
            KeptReasoning::All if usage.reasoning > 0 => usage.reasoning,
            KeptReasoning::All => reasoning,
        };
        let estimated = said.saturating_add(reasoning);
        let is_apart = |more: u32, less: u32| {
            more > less.saturating_mul(MAX_DEVIATION_FACTOR).saturating_add(MIN_DEVIATION_TOKENS)
        };
        let holds_something_else = is_apart(reported, estimated) || is_apart(estimated, reported);
        if calls > 0 || template.counts_exactly() || holds_something_else { estimated } else { reported }
    }

    /// Tokens of a message in addition to its parts.
    pub fn overhead<'a>(self, role: Role, parts: impl IntoIterator<Item = &'a Part>) -> u32 {
        match self {
            Self::Characters => estimate::MESSAGE_OVERHEAD,
            Self::Family(template) => {
                let calls = parts.into_iter().filter(|part| matches!(part.content, Content::ToolCall(_))).count();
                template.costs.of(&template.terms_of_frame(role, calls))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::testing,
        model::{Category, Message, generation::ToolChoice, media::Media, media::Source},
    };

    fn family(name: &str) -> Estimator {
        Estimator::of(Template::named(name).unwrap())
    }

    fn message(estimator: Estimator, message: &Message) -> u32 {
        let parts = || message.parts.iter().map(|stored| &stored.part);
        let overhead = estimator.overhead(message.role, parts());
        parts().map(|part| estimator.part(part, message.role).tokens).fold(overhead, u32::saturating_add)
    }

    #[test]
    fn a_model_of_no_family_is_counted_by_characters() {
        let unknown = Estimator::of(Template::of("scripted", "demo"));
        assert_eq!((unknown, unknown.name().as_ref()), (Estimator::Characters, "heuristic"));
        let said = testing::user("Figures: 3.14159 2.71828 1.41421");
        assert_eq!(message(unknown, &said), estimate::message(&said));
        assert_eq!(unknown.frame(), 0, "row A3");
        assert!(unknown.is_loaded());
    }

    #[test]
    fn a_family_counts_text_by_its_vocabulary_and_framing_by_its_prices() {
        let gpt = family("gpt-4-chat");
        assert_eq!(gpt.name(), "o200k+gpt-4-chat");
        let figures = "3.14159 2.71828 1.41421 1.61803";
        let table = [
            (testing::user("Hello, world!"), 4 + 4),
            (testing::user(figures), 4 + 19),
            (testing::assistant("Hello, world!"), 4 + 4),
            (testing::calls(&["look"]), 4 + (2 + 2)), // "look" and "{}"
            // A second call has its own price.
            (testing::calls(&["look", "look"]), 4 + 19 + 2 * 4),
            (testing::results(&[("look", "Hello, world!")]), 4 + (6 + 4)),
        ];
        for (said, expected) in table {
            assert_eq!(message(gpt, &said), expected, "{:?}", said.parts);
        }
        assert!(estimate::text(figures) < 10, "characters alone say half of it");
        assert!(gpt.is_loaded(), "by now");
        assert_eq!((gpt.frame(), family("mistral").frame()), (4, 1));
    }

    /// The parts of the message with their sizes.
    fn sized(estimator: Estimator, message: &Message) -> Vec<StoredPart> {
        let sized =
            |stored: &StoredPart| StoredPart { size: estimator.part(&stored.part, message.role), ..stored.clone() };
        message.parts.iter().map(sized).collect()
    }

    fn calling(calls: &[(&str, &str)]) -> Message {
        let names: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
        let mut said = testing::calls(&names);
        for (stored, (_, json)) in said.parts.iter_mut().zip(calls) {
            if let Content::ToolCall(call) = &mut stored.part.content {
                (*json).clone_into(&mut call.arguments);
            }
        }
        said
    }

    /// Row P10: recorded rounds. The reported cost of a call when it was written differs from its cost in the next
    /// prompt.
    #[test]
    fn p10_a_tool_round_after_a_reported_call_costs_what_the_next_prompt_has_of_it() {
        let capital =
            (calling(&[("get_capital", r#"{"country":"UK"}"#)]), testing::results(&[("get_capital", "London")]));
        let unavailable = "Tool 'read_file_head' is currently unavailable. \
                           Please use 'read_file_tail' instead to read the file.";
        let both = (
            calling(&[("read_file_head", "{}"), ("read_file_tail", "{}")]),
            testing::results(&[("read_file_head", unavailable), ("read_file_tail", "hello world")]),
        );
        let sum = (calling(&[("add", r#"{"x":2,"y":3}"#)]), testing::results(&[("add", "transient failure; retry")]));
        let table = [
            ("gpt-4-chat", 53, 15, capital, 78),
            ("gpt-4-chat", 105, 42, both, 184),
            ("claude-4.5", 608, 69, sum, 694),
        ];
        for (name, input, output, (answer, results), next) in table {
            let estimator = family(name);
            let usage = Usage { input, output, ..Usage::default() };
            let answered = estimator.response(&sized(estimator, &answer), &usage, KeptReasoning::Nothing);
            let predicted = input + answered + estimator.frame() + message(estimator, &results);
            assert!(predicted.abs_diff(next) <= 3, "{name}: {predicted} predicted, {next} reported");
        }
    }

    /// Recorded: a prompt of 22 tokens with a response of 6 (`run A probe`), and one of 38 that continues it; one of 21
    /// with a response of 5 (`first probe`), then 38.
    #[test]
    fn what_ends_an_answer_of_claude_is_reported_with_it_and_counted_once() {
        let estimator = family("claude-4.5");
        let table = [
            (22, 6, "run A probe", "Reply with exactly: run B probe"),
            (21, 5, "first probe", "Please answer again with exactly: retried probe"),
        ];
        for (input, output, answer, next) in table {
            let usage = Usage { input, output, ..Usage::default() };
            let answer = sized(estimator, &testing::assistant(answer));
            let answered = estimator.response(&answer, &usage, KeptReasoning::Nothing);
            let next = message(estimator, &testing::user(next));
            let predicted = input + answered + estimator.frame() + next;
            assert!(predicted.abs_diff(38) <= 1, "{predicted}");
        }
    }

    #[test]
    fn an_answer_counts_as_reported_where_nothing_is_closer() {
        let said = testing::assistant("Hello, world!"); // four tokens of o200k
        let thought = testing::message(
            Role::Assistant,
            vec![
                Part::new(Content::Reasoning { text: "Hello, world!".to_owned(), redacted: false }),
                said.parts[0].part.clone(),
            ],
        );
        let unknown = Estimator::Characters;
        let (all, nothing) = (KeptReasoning::All, KeptReasoning::Nothing);
        let table = [
            // Estimator, response, output, reasoning part of it, kept reasoning, tokens.
            (unknown, &said, 90, 40, all, 90),
            (unknown, &said, 90, 40, nothing, 50),
            (family("gpt-4-chat"), &said, 6, 0, nothing, 4),
            (family("gpt-4-chat"), &thought, 90, 40, nothing, 4),
            (family("gpt-4-chat"), &thought, 90, 40, all, 4 + 40),
            (family("gpt-4-chat"), &thought, 90, 0, all, 4 + 4),
            (family("claude-4.5"), &said, 7, 0, nothing, 4),
            (family("claude-4.5"), &said, 900, 0, nothing, 4),
        ];
        for (estimator, message, output, reasoning, kept, expected) in table {
            let usage = Usage { output, reasoning, ..Usage::default() };
            let answered = estimator.response(&sized(estimator, message), &usage, kept);
            assert_eq!(answered, expected, "{} {output} {kept:?}", estimator.name());
        }
        let item = testing::message(
            Role::Assistant,
            vec![Part::new(Content::ProviderItem(crate::model::ProviderItem {
                provider: "main".to_owned(),
                kind: "search".to_owned(),
                json: "{}".to_owned(),
                title: String::new(),
            }))],
        );
        let gpt = family("gpt-4-responses");
        let usage = Usage { output: 77, ..Usage::default() };
        assert_eq!(gpt.response(&sized(gpt, &item), &usage, nothing), 77);
    }

    #[test]
    fn each_result_has_a_frame_of_its_own() {
        let gpt = family("gpt-4-chat");
        let one = message(gpt, &testing::results(&[("look", "seen")]));
        let both = message(gpt, &testing::results(&[("look", "seen"), ("look", "seen")]));
        assert_eq!(both, 2 * one);
    }

    #[test]
    fn a_family_counts_non_transcript_tokens_like_a_prompt_without_messages() {
        let tool = testing::tool("look");
        let choices = [None, Some(ToolChoice::None), Some(ToolChoice::Required), Some(ToolChoice::Tool("look".into()))];
        for template in Template::all().filter(|template| template.is_of_a_family()) {
            for (system, told) in [("", false), ("Be brief, please.", false), ("", true), ("Be brief, please.", true)] {
                for choice in &choices {
                    let tools = if told { std::slice::from_ref(&tool) } else { &[] };
                    let generation = Generation { tool_choice: choice.clone(), ..Generation::default() };
                    let whole = template.count(&template.terms_of(system, tools, &[], &generation)).tokens;
                    let estimator = Estimator::of(template);
                    assert!(told || !estimator.has_counted("never seen", tools));
                    let outside = estimator.non_transcript(system, tools, &generation);
                    assert_eq!(outside.tokens(), whole, "{} {system:?} {told} {choice:?}", template.name);
                    assert!(estimator.has_counted(system, tools));
                }
            }
        }
    }

    #[test]
    fn non_transcript_tokens_of_an_unknown_family_are_counted_by_characters() {
        let tool = testing::tool("look"); // 31 characters
        let table = [("", false, (0, 0)), ("12345678", false, (2 + 4, 0)), ("12345678", true, (2 + 4, 8))];
        for (system, told, (instructions, tools)) in table {
            let found =
                Estimator::Characters.non_transcript(system, Some(&tool).filter(|_| told), &Generation::default());
            assert_eq!(found, NonTranscript { instructions, tools, priming: 3 }, "{system:?} {told}");
        }
    }

    #[test]
    fn media_cost_the_same_in_every_estimator() {
        let source = Source::Url("https://example.org/a.png".to_owned());
        let picture = Media { media_type: "image/png".to_owned(), source, filename: String::new() };
        let part = Part::new(Content::Media(picture));
        for template in Template::all() {
            let counted = Estimator::of(template).part(&part, Role::User);
            assert_eq!((counted.tokens, counted.category), (1_600, Category::Media), "{}", template.name);
        }
    }

    proptest! {
        #[test]
        fn a_family_counts_a_message_as_it_counts_a_prompt_of_it(words in "\\PC{0,60}", calls in 0_usize..4) {
            for template in Template::all().filter(|template| template.is_of_a_family()) {
                let mut said = testing::calls(&vec!["look"; calls]);
                said.parts.insert(0, testing::assistant(&words).parts.remove(0));
                let expected = template.costs.value(&template.terms_of_message(&said));
                let counted = f64::from(message(Estimator::of(template), &said));
                let parts = said.parts.len() as f64 + 1.0;
                prop_assert!((counted - expected).abs() <= 0.5 * parts, "{}: {counted}, not {expected}", template.name);
            }
        }
    }
}
