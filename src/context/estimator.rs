//! Counts what is stored, as the model will read it for which it is stored.

use std::borrow::Cow;

use super::{
    estimate, media,
    template::{Pictures, Template, Term, Terms},
};
use crate::model::{Content, Counted, Generation, Part, Role, Tool};

/// Who counts. Counts are stored under its name and stay what they are when the session goes on
/// with another model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimator {
    /// From the number of characters: the model's family is not known.
    Characters,
    /// With a family's vocabulary and prices.
    Family(&'static Template),
}

/// The size of what a prompt has beside its transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NonTranscript {
    /// The system prompt, and what every prompt costs whatever it says.
    pub instructions: u32,
    /// The definitions of tools, and what stands around them.
    pub tools: u32,
    /// What opens the model's answer, where that is no part of the rest.
    pub priming: u32,
}

impl NonTranscript {
    /// The same with the definitions of tools that the provider runs.
    #[must_use]
    pub fn with_provider_tools(self, estimator: Estimator, definitions: &[&str]) -> Self {
        let sizes = definitions.iter().map(|json| estimator.provider_tool(json));
        Self {
            tools: sizes.fold(self.tools, u32::saturating_add),
            ..self
        }
    }

    /// All of it.
    pub fn tokens(self) -> u32 {
        self.instructions
            .saturating_add(self.tools)
            .saturating_add(self.priming)
    }
}

impl Estimator {
    /// The one for models of a template.
    pub fn of(template: &'static Template) -> Self {
        if template.is_of_a_family() {
            Self::Family(template)
        } else {
            Self::Characters
        }
    }

    /// The name under which counts are stored.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Characters => Cow::Borrowed(estimate::ESTIMATOR),
            Self::Family(template) => Cow::Owned(template.estimator()),
        }
    }

    /// Whether it counts at once; else its vocabulary is loaded first.
    pub fn is_loaded(self) -> bool {
        match self {
            Self::Characters => true,
            Self::Family(template) => template.counter().is_loaded(),
        }
    }

    /// Size of a part. Media are taken for what they cost on an average: what is left out for a
    /// model is subtracted as that.
    pub fn part(self, part: &Part, role: Role) -> Counted {
        match self {
            Self::Characters => estimate::part(part, role),
            Self::Family(template) => {
                let media = part
                    .media()
                    .map(|medium| f64::from(media::tokens(medium, Pictures::default())))
                    .sum();
                let mut terms = template.terms_of_part(part, role);
                terms.set(Term::Media, media);
                Counted {
                    tokens: template.costs.of(&terms),
                    category: estimate::category(&part.content, role),
                }
            }
        }
    }

    /// Size of a text in a result.
    pub fn output(self, text: &str) -> u32 {
        match self {
            Self::Characters => estimate::text(text),
            Self::Family(template) => template.counter().text(text),
        }
    }

    /// What a prompt has beside its transcript: the system prompt, the tool definitions that are
    /// sent, and the text around them.
    pub fn non_transcript<'a>(
        self,
        system: &str,
        tools: impl IntoIterator<Item = &'a Tool>,
        generation: &Generation,
    ) -> NonTranscript {
        match self {
            Self::Characters => {
                let tools = tools
                    .into_iter()
                    .map(estimate::tool)
                    .fold(0, u32::saturating_add);
                NonTranscript {
                    instructions: estimate::system(system),
                    tools,
                    priming: estimate::REPLY_PRIMING,
                }
            }
            Self::Family(template) => {
                let whole = template
                    .costs
                    .of(&template.terms_outside(system, tools, generation));
                let instructions = template
                    .costs
                    .of(&template.terms_of_instructions(system, generation))
                    .min(whole);
                NonTranscript {
                    instructions,
                    tools: whole - instructions,
                    priming: 0,
                }
            }
        }
    }

    /// Whether all of that was counted before, so that it takes no time now.
    pub fn has_counted<'a>(self, system: &str, tools: impl IntoIterator<Item = &'a Tool>) -> bool {
        match self {
            Self::Characters => true,
            Self::Family(template) => template.has_counted(system, tools),
        }
    }

    /// Size of a tool's definition, without what stands around all of them.
    pub fn tool(self, tool: &Tool) -> u32 {
        match self {
            Self::Characters => estimate::tool(tool),
            Self::Family(template) => template.costs.of(&template.terms_of_tool(tool)),
        }
    }

    /// Size of the definition of a tool that the provider runs: of what is sent of it. What the
    /// service adds for it is not known before a call was measured.
    pub fn provider_tool(self, definition: &str) -> u32 {
        self.instruction(definition)
    }

    /// Size of a text of the system prompt.
    pub fn instruction(self, text: &str) -> u32 {
        match self {
            Self::Characters => estimate::text(text),
            Self::Family(template) => template
                .costs
                .of(&Terms::some(Term::Text, template.known_tokens(text))),
        }
    }

    /// What an answer costs in later prompts beside what it was reported to have: it then stands in
    /// a message. Row A3 leaves it out where only characters are counted.
    pub fn frame(self) -> u32 {
        match self {
            Self::Characters => 0,
            Self::Family(_) => self.overhead(Role::Assistant, []),
        }
    }

    /// What a message costs beside its parts.
    pub fn overhead<'a>(self, role: Role, parts: impl IntoIterator<Item = &'a Part>) -> u32 {
        match self {
            Self::Characters => estimate::MESSAGE_OVERHEAD,
            Self::Family(template) => {
                let calls = parts
                    .into_iter()
                    .filter(|part| matches!(part.content, Content::ToolCall(_)))
                    .count();
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
        parts()
            .map(|part| estimator.part(part, message.role).tokens)
            .fold(overhead, u32::saturating_add)
    }

    #[test]
    fn a_model_of_no_family_is_counted_by_characters() {
        let unknown = Estimator::of(Template::of("scripted", "demo"));
        assert_eq!(
            (unknown, unknown.name().as_ref()),
            (Estimator::Characters, "heuristic")
        );
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
            // A second call has a price of its own.
            (testing::calls(&["look", "look"]), 4 + 19 + 2 * 4),
            (testing::results(&[("look", "Hello, world!")]), 4 + (6 + 4)),
        ];
        for (said, expected) in table {
            assert_eq!(message(gpt, &said), expected, "{:?}", said.parts);
        }
        assert!(
            estimate::text(figures) < 10,
            "characters alone say half of it"
        );
        assert!(gpt.is_loaded(), "by now");
        assert_eq!((gpt.frame(), family("mistral").frame()), (4, 1));
    }

    #[test]
    fn a_family_counts_non_transcript_tokens_like_a_prompt_without_messages() {
        let tool = testing::tool("look");
        let choices = [
            None,
            Some(ToolChoice::None),
            Some(ToolChoice::Required),
            Some(ToolChoice::Tool("look".into())),
        ];
        for template in Template::all().filter(|template| template.is_of_a_family()) {
            for (system, told) in [
                ("", false),
                ("Be brief, please.", false),
                ("", true),
                ("Be brief, please.", true),
            ] {
                for choice in &choices {
                    let tools = if told {
                        std::slice::from_ref(&tool)
                    } else {
                        &[]
                    };
                    let generation = Generation {
                        tool_choice: choice.clone(),
                        ..Generation::default()
                    };
                    let whole = template
                        .count(&template.terms_of(system, tools, &[], &generation))
                        .tokens;
                    let estimator = Estimator::of(template);
                    assert!(told || !estimator.has_counted("never seen", tools));
                    let outside = estimator.non_transcript(system, tools, &generation);
                    assert_eq!(
                        outside.tokens(),
                        whole,
                        "{} {system:?} {told} {choice:?}",
                        template.name
                    );
                    assert!(estimator.has_counted(system, tools));
                }
            }
        }
    }

    #[test]
    fn non_transcript_tokens_of_an_unknown_family_are_counted_by_characters() {
        let tool = testing::tool("look"); // 31 characters
        let table = [
            ("", false, (0, 0)),
            ("12345678", false, (2 + 4, 0)),
            ("12345678", true, (2 + 4, 8)),
        ];
        for (system, told, (instructions, tools)) in table {
            let found = Estimator::Characters.non_transcript(
                system,
                Some(&tool).filter(|_| told),
                &Generation::default(),
            );
            assert_eq!(
                found,
                NonTranscript {
                    instructions,
                    tools,
                    priming: 3
                },
                "{system:?} {told}"
            );
        }
    }

    #[test]
    fn media_cost_the_same_in_every_estimator() {
        let source = Source::Url("https://example.org/a.png".to_owned());
        let picture = Media {
            media_type: "image/png".to_owned(),
            source,
            filename: String::new(),
        };
        let part = Part::new(Content::Media(picture));
        for template in Template::all() {
            let counted = Estimator::of(template).part(&part, Role::User);
            assert_eq!(
                (counted.tokens, counted.category),
                (1_600, Category::Media),
                "{}",
                template.name
            );
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
