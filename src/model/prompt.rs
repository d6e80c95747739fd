//! The prompt: everything a model is given for one call, in neutral form.

use std::collections::BTreeMap;

use super::{Closed, Content, Contents, Generation, MessageId, Role, TokenCount, Tool};

/// What a model is given for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The model's name within its provider.
    pub model: String,
    /// The system prompt and each pinned block, in order; empty: none.
    pub system: Vec<String>,
    /// The conversation. Every call in it has its result.
    pub transcript: Closed,
    /// The content of its media.
    pub contents: Contents,
    /// Tools the model may call; empty for a model without tool support.
    pub tools: Vec<Tool>,
    /// Definitions, as JSON, of the tools that the provider itself runs.
    pub provider_tools: Vec<String>,
    /// Tokens of the answer. `None` means the model's limit.
    pub max_output_tokens: Option<u32>,
    /// How the model is to answer.
    pub generation: Generation,
    /// Its predicted size.
    pub size: TokenCount,
}

impl Prompt {
    /// The system prompt with the pinned blocks as one text; empty: none.
    pub fn instructions(&self) -> String {
        self.system.join("\n\n")
    }

    /// Bytes of its texts and of its media's content.
    pub fn bytes(&self) -> usize {
        let messages = self.transcript.messages().iter();
        let said =
            messages
                .flat_map(|message| &message.parts)
                .map(|stored| match &stored.part.content {
                    Content::Text(text)
                    | Content::Refusal(text)
                    | Content::Reasoning { text, redacted: _ } => text.len(),
                    Content::ProviderItem(item) => item.json.len(),
                    Content::Media(_) | Content::Unknown(_) => 0,
                    Content::ToolCall(call) => call.name.len() + call.arguments.len(),
                    Content::ToolResult(result) => result.texts().map(str::len).sum(),
                });
        let tools = self.tools.iter();
        let tools = tools
            .map(|tool| tool.description.len() + tool.input_schema.as_deref().map_or(0, str::len));
        let other = self.system.iter().chain(&self.provider_tools);
        said.chain(tools)
            .chain(other.map(String::len))
            .sum::<usize>()
            + self.contents.bytes()
    }
}

/// How the messages of a request differ from those of its prompt, where the service takes them in a
/// certain order only: what is added, and which messages become part of another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrangement {
    /// Messages more, by role; negative: fewer.
    pub messages: BTreeMap<Role, i64>,
    /// Texts that are added, each with how often.
    pub texts: BTreeMap<&'static str, i64>,
}

impl Arrangement {
    /// Adds so many messages of a role.
    pub fn messages(&mut self, role: Role, count: i64) {
        *self.messages.entry(role).or_default() += count;
    }

    /// Adds a text so many times.
    pub fn texts(&mut self, text: &'static str, count: i64) {
        *self.texts.entry(text).or_default() += count;
    }

    /// What this has beside another one.
    #[must_use]
    pub fn less(mut self, other: &Self) -> Self {
        other
            .messages
            .iter()
            .for_each(|(role, count)| self.messages(*role, -count));
        other
            .texts
            .iter()
            .for_each(|(text, count)| self.texts(text, -count));
        self
    }
}

/// Something that is stored but not, or not as it was, in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptNote {
    /// What happened to it.
    pub kind: PromptNoteKind,
    /// The message. `None` means it concerns several.
    pub message: Option<MessageId>,
    /// The part. `None` means the whole message.
    pub part: Option<usize>,
    /// One sentence for people.
    pub text: String,
}

/// What happened to something on its way into a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptNoteKind {
    /// A tool result became the placeholder.
    Pruned,
    /// A summary stands for it.
    Compacted,
    /// A tool result was cut when it was stored.
    Truncated,
    /// Left out: nothing in it can be sent, or it means nothing to this model.
    Dropped,
    /// The model does not get it; words stand in its place.
    Unsupported,
}

/// In which shape a prompt is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptShape {
    /// The messages of this API.
    Neutral,
    /// A request of OpenAI's Chat Completions.
    OpenAiChat,
    /// A request of OpenAI's Responses API.
    OpenAiResponses,
    /// A request of Anthropic Messages.
    Anthropic,
    /// A request of Gemini's generateContent.
    Gemini,
    /// The arguments of the AI SDK's functions, in its versions 5 and 6.
    AiSdk,
    /// The same in its version 7.
    AiSdk7,
    /// The request that contextd itself would send; where it would send none, neutral.
    Native,
}
