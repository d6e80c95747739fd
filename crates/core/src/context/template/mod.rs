//! Templates: how a model family renders a prompt, and the cost of that in tokens.
//!
//! Providers wrap a request in a fixed form before the model reads it: a hidden block about tools, delimiters around
//! each message, definitions rewritten as TypeScript or JSON. That form, not the vocabulary, is the main error of
//! simple estimates. Each family is one row of [`table`]: a vocabulary, the form of definitions, and the cost of each
//! [`Term`] of a prompt.

use std::{borrow::Cow, collections::BTreeMap};

use serde::de::IgnoredAny;

use super::{media, tokens::Counter};
use crate::model::{
    Content, Generation, Message, Part, Prompt, RequestDiff, Role, Tool,
    generation::{ReasoningEffort, ToolChoice},
};

mod definitions;
mod family;
mod lookup;
mod memo;
pub(super) mod picture_tokens;
mod table;
mod terms;

#[cfg(test)]
mod tests;

pub use definitions::Definitions;
pub use family::Template;
pub use picture_tokens::ImageCost;
pub use terms::{Costs, TERMS, Term, Terms};

impl Template {
    /// The family's vocabulary, or o200k if the build does not include it.
    pub fn counter(&self) -> &'static dyn Counter {
        self.vocabulary.counter_or_o200k()
    }

    /// The terms of a prompt for this family.
    pub fn terms(&self, prompt: &Prompt) -> Terms {
        let Prompt {
            model: _,
            system: _,
            transcript,
            contents: _,
            tools,
            // The service counts them in its own way; the reported usage corrects the prediction.
            provider_tools: _,
            max_output_tokens: _,
            generation,
            size: _,
        } = prompt;
        let system = prompt.instructions();
        self.terms_of(&system, tools, transcript.messages(), generation)
    }

    /// The terms of a prompt from its components.
    pub fn terms_of(&self, system: &str, tools: &[Tool], messages: &[Message], generation: &Generation) -> Terms {
        let mut terms = self.non_transcript_terms(system, tools, generation);
        for message in messages {
            terms.add(&self.terms_of_message(message));
        }
        terms
    }

    /// The terms of a prompt without its messages.
    pub fn non_transcript_terms<'a>(
        &self,
        system: &str,
        tools: impl IntoIterator<Item = &'a Tool>,
        generation: &Generation,
    ) -> Terms {
        let mut terms = self.terms_of_instructions(system, generation);
        let mut tools = tools.into_iter().peekable();
        if tools.peek().is_some() {
            terms.add(&self.terms_of_tools(tools, generation.tool_choice.as_ref()));
        }
        if terms.get(Term::Tools) > 0.0 && !system.is_empty() {
            terms.set(Term::ToolsBesideSystem, 1.0);
            terms.set(Term::ForcedBesideSystem, terms.get(Term::Forced));
        }
        terms
    }

    /// The terms of the system prompt, or of its absence, and the fixed terms of every prompt.
    pub fn terms_of_instructions(&self, system: &str, generation: &Generation) -> Terms {
        let mut terms = self.terms_of_system(system);
        terms.set(Term::Prompt, 1.0);
        let effort = generation.reasoning_effort;
        let is_off = effort == Some(ReasoningEffort::None);
        terms.set(Term::Thinking, f64::from(u8::from(!is_off)));
        let is_requested = effort.is_some() && !is_off;
        terms.set(Term::ThinkingRequested, f64::from(u8::from(is_requested)));
        terms
    }

    /// The terms of the system prompt, or of its absence.
    pub fn terms_of_system(&self, system: &str) -> Terms {
        if system.is_empty() {
            return Terms::one(Term::NoSystem);
        }
        let mut terms = Terms::one(Term::System);
        terms.set(Term::Text, self.memoized_tokens(system));
        terms
    }

    /// Tokens of a text that is likely to be counted again. The result is cached.
    pub fn memoized_tokens(&self, text: &str) -> f64 {
        memo::terms(&(self.name, text), || Terms::some(Term::Text, self.tokens(text))).get(Term::Text)
    }

    /// Whether the system prompt and all tools are cached, so that counting them takes no time.
    pub fn has_counted<'a>(&self, system: &str, tools: impl IntoIterator<Item = &'a Tool>) -> bool {
        (system.is_empty() || memo::knows(&(self.name, system)))
            && tools.into_iter().all(|tool| memo::knows(&self.definition(tool)))
    }

    /// The terms of one message.
    pub fn terms_of_message(&self, message: &Message) -> Terms {
        let calls = message.parts.iter().filter(|stored| matches!(stored.part.content, Content::ToolCall(_)));
        let mut terms = self.terms_of_frame(message.role, calls.count());
        for stored in &message.parts {
            terms.add(&self.terms_of_part(&stored.part, message.role));
        }
        terms
    }

    /// The terms of a message with this many calls, without its parts. Each result has its own frame, regardless of how
    /// many a message contains, because the prices were fitted to requests in that form.
    pub fn terms_of_frame(&self, role: Role, calls: usize) -> Terms {
        let mut terms = match role {
            Role::System => Terms::one(Term::System),
            Role::User | Role::Assistant => Terms::one(Term::Message),
            Role::Tool => Terms::default(),
        };
        terms.set(Term::Answer, f64::from(u8::from(role == Role::Assistant)));
        terms.set(Term::ParallelCall, calls.saturating_sub(1) as f64);
        terms
    }

    /// The terms of one part, without its message. Metadata attached by a provider is opaque and not counted.
    pub fn terms_of_part(&self, part: &Part, role: Role) -> Terms {
        let mut terms = Terms::default();
        terms.set(Term::Media, part.media().map(|medium| f64::from(media::tokens(medium, self.image_cost()))).sum());
        match &part.content {
            Content::Text(text) => terms.set(Term::Text, self.tokens(&self.sent(text, role))),
            Content::Reasoning { text, redacted: _ } | Content::Refusal(text) => {
                terms.set(Term::Text, self.tokens(text));
            }
            Content::ToolCall(call) => {
                terms.set(Term::Call, 1.0);
                terms.set(Term::CallText, self.tokens(&call.name) + self.tokens(&call.arguments));
                terms.set(Term::Argument, arguments(&call.arguments));
            }
            Content::ToolResult(result) => {
                terms.set(Term::Message, 1.0);
                terms.set(Term::Result, 1.0);
                terms.set(Term::ResultText, result.texts().map(|text| self.tokens(text)).sum());
            }
            Content::ProviderItem(item) => terms.set(Term::Text, self.tokens(&item.json)),
            Content::Media(_) | Content::Unknown(_) => {}
        }
        terms
    }

    /// The terms of the messages and texts that the message order of a request adds or merges.
    pub fn terms_of_arrangement(&self, arrangement: &RequestDiff) -> Terms {
        let mut terms = Terms::default();
        for (role, count) in &arrangement.messages {
            let mut frames = self.terms_of_frame(*role, 0);
            frames.scale(*count as f64);
            terms.add(&frames);
        }
        let texts = arrangement.texts.iter().map(|(text, count)| self.memoized_tokens(text) * *count as f64);
        terms.add(&Terms::some(Term::Text, texts.sum()));
        terms
    }

    /// The terms of the tool definitions.
    pub fn terms_of_tools<'a>(&self, tools: impl IntoIterator<Item = &'a Tool>, choice: Option<&ToolChoice>) -> Terms {
        if self.none_hides_tools && matches!(choice, Some(ToolChoice::None)) {
            return Terms::one(Term::Forbidden);
        }
        let mut terms = Terms::one(Term::Tools);
        for tool in tools.into_iter().filter(|tool| self.shows(tool, choice)) {
            terms.add(&self.terms_of_tool(tool));
        }
        match choice {
            None | Some(ToolChoice::Auto) => {}
            Some(ToolChoice::None) => terms.set(Term::Forbidden, 1.0),
            Some(ToolChoice::Required | ToolChoice::Tool(_)) => terms.set(Term::Forced, 1.0),
        }
        terms
    }

    /// Whether the tool is sent to the model: some services send only the tool whose call is required.
    fn shows(&self, tool: &Tool, choice: Option<&ToolChoice>) -> bool {
        match choice {
            Some(ToolChoice::Tool(name)) if self.forced_hides_others => tool.name == *name,
            None | Some(ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Tool(_)) => true,
        }
    }

    /// The terms of one tool definition, without the text around all definitions. The result is cached.
    pub fn terms_of_tool(&self, tool: &Tool) -> Terms {
        memo::terms(&self.definition(tool), || self.count_tool(tool))
    }

    /// The cache key of a definition.
    fn definition<'a>(&self, tool: &'a Tool) -> (&'static str, &'a str, &'a str, Option<&'a str>) {
        (self.name, &tool.name, &tool.description, tool.input_schema.as_deref())
    }

    fn count_tool(&self, tool: &Tool) -> Terms {
        let written = self.definitions.write(tool);
        let mut terms = Terms::one(Term::Tool);
        terms.set(Term::Definition, written.texts.iter().map(|text| self.tokens(text)).sum());
        terms.set(Term::DescribedTool, f64::from(u8::from(!tool.description.is_empty())));
        terms.set(Term::Property, f64::from(written.properties));
        terms.set(Term::DescribedProperty, f64::from(written.described));
        terms.set(Term::NestedObject, f64::from(written.nested));
        terms.set(Term::List, f64::from(written.lists));
        terms.set(Term::Nullable, f64::from(written.nullable));
        terms
    }

    /// The part of a text that the template sends: some families remove the reasoning in the text of earlier responses.
    fn sent<'a>(&self, text: &'a str, role: Role) -> Cow<'a, str> {
        match text.rsplit_once("</think>") {
            Some((_, answer)) if self.drops_thinking && role == Role::Assistant => {
                Cow::Borrowed(answer.trim_start_matches('\n'))
            }
            Some(_) | None => Cow::Borrowed(text),
        }
    }

    fn tokens(&self, text: &str) -> f64 {
        f64::from(self.counter().text(text))
    }
}

/// The number of arguments of a call; 0 if they are not a JSON object.
fn arguments(json: &str) -> f64 {
    let members: BTreeMap<String, IgnoredAny> = serde_json::from_str(json).unwrap_or_default();
    members.len() as f64
}
