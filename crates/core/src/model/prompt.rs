//! The prompt: the complete input of one model call, independent of the provider.

use std::collections::BTreeMap;

use super::{ClosedTranscript, Content, Contents, Generation, MessageId, Role, TokenCount, Tool};

/// The complete input of one model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The model's name at its provider.
    pub model: String,
    /// The system prompt and each pinned block, in order; empty if there are none.
    pub system: Vec<String>,
    pub transcript: ClosedTranscript,
    /// The content of the media in `transcript`.
    pub contents: Contents,
    /// Tools that the model may call; empty for a model without tool support.
    pub tools: Vec<Tool>,
    /// Definitions, as JSON, of the tools that the provider itself runs.
    pub provider_tools: Vec<String>,
    /// Maximum tokens of the response. `None` means the model's limit.
    pub max_output_tokens: Option<u32>,
    pub generation: Generation,
    /// The predicted size.
    pub size: TokenCount,
}

impl Prompt {
    /// The system prompt and the pinned blocks as one text; empty if there are none.
    pub fn instructions(&self) -> String {
        self.system.join("\n\n")
    }

    /// Size of the texts and of the media's content, in bytes.
    pub fn bytes(&self) -> usize {
        let messages = self.transcript.messages().iter();
        let said = messages.flat_map(|message| &message.parts).map(|stored| match &stored.part.content {
            Content::Text(text) | Content::Refusal(text) | Content::Reasoning { text, redacted: _ } => text.len(),
            Content::ProviderItem(item) => item.json.len(),
            Content::Media(_) | Content::Unknown(_) => 0,
            Content::ToolCall(call) => call.name.len() + call.arguments.len(),
            Content::ToolResult(result) => result.texts().map(str::len).sum(),
        });
        let tools = self.tools.iter();
        let tools = tools.map(|tool| tool.description.len() + tool.input_schema.as_deref().map_or(0, str::len));
        let other = self.system.iter().chain(&self.provider_tools);
        said.chain(tools).chain(other.map(String::len)).sum::<usize>() + self.contents.bytes()
    }
}

/// How the messages of a request differ from those of its prompt, for a service that accepts only a certain order of
/// messages: messages are added, or merged into another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestDiff {
    /// Number of added messages by role; negative if messages were merged.
    pub messages: BTreeMap<Role, i64>,
    /// The added texts, each with its number of occurrences.
    pub texts: BTreeMap<&'static str, i64>,
}

impl RequestDiff {
    /// Adds `count` messages of a role.
    pub fn messages(&mut self, role: Role, count: i64) {
        *self.messages.entry(role).or_default() += count;
    }

    /// Adds `count` occurrences of a text.
    pub fn texts(&mut self, text: &'static str, count: i64) {
        *self.texts.entry(text).or_default() += count;
    }

    /// The difference to another arrangement.
    #[must_use]
    pub fn less(mut self, other: &Self) -> Self {
        other.messages.iter().for_each(|(role, count)| self.messages(*role, -count));
        other.texts.iter().for_each(|(text, count)| self.texts(text, -count));
        self
    }
}

/// A note about stored content that is missing from a prompt, or different in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptNote {
    pub kind: PromptNoteKind,
    /// `None` means it concerns several messages.
    pub message: Option<MessageId>,
    /// Index of the part. `None` means the whole message.
    pub part: Option<usize>,
    /// One sentence for users.
    pub text: String,
}

/// What happened to stored content in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptNoteKind {
    /// A tool result was replaced by the placeholder.
    Pruned,
    /// It was replaced by a summary.
    Compacted,
    /// A tool result was truncated when it was stored.
    Truncated,
    /// Left out: it has no content that can be sent, or none that this model can use.
    Dropped,
    /// The model does not support it; a text replaces it.
    Unsupported,
}

/// The format of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptFormat {
    /// The messages of this API.
    Neutral,
    /// A request of OpenAI's Chat Completions API.
    OpenAiChat,
    /// A request of OpenAI's Responses API.
    OpenAiResponses,
    /// A request of Anthropic's Messages API.
    Anthropic,
    /// A request of Gemini's generateContent.
    Gemini,
    /// The arguments of the AI SDK's functions, versions 5 and 6.
    AiSdk,
    /// The arguments of the AI SDK's functions, version 7.
    AiSdk7,
    /// The request that contextd itself would send; neutral if it cannot send one.
    Native,
}

impl PromptFormat {
    /// Whether a prompt in this format is the body of a request.
    pub fn is_body(self) -> bool {
        self != Self::Neutral
    }
}
