//! Reasoning that is bound to the content before it. Newer Claude models sign their reasoning
//! together with that content, also if a gateway passes it on as `reasoning_details`.

use std::collections::BTreeSet;

use super::{dialect::Dialect, encode_options::EncodeOptions};
use crate::{
    model::{Content, Message, Part, Prompt, Role, service_rules::ReasoningBack},
    provider::{anthropic, inputs::identity, prefix::Prefix},
};

/// The reasoning of a conversation, for a model that binds it. Empty for other models.
#[derive(Debug, Default)]
pub(super) struct BoundReasoning {
    /// Indexes of the responses whose reasoning follows other content than it was generated after.
    stale: BTreeSet<usize>,
    /// Fingerprint of the whole conversation.
    pub(super) fingerprint: Option<String>,
}

impl BoundReasoning {
    /// Checks the reasoning of a prompt.
    pub(super) fn of(prompt: &Prompt, form: EncodeOptions<'_>) -> Self {
        if !binds(form.dialect, &prompt.model) {
            return Self::default();
        }
        let stored = prompt.transcript.messages();
        let mut prefix = Prefix::of(stored);
        for tool in &prompt.tools {
            let schema = tool.input_schema.as_deref().unwrap_or_default();
            prefix.add("tool", [tool.name.as_str(), &tool.description, schema]);
        }
        prefix.add("system", [prompt.instructions().as_str()]);
        let mut stale = BTreeSet::new();
        for (at, message) in stored.iter().enumerate() {
            let response = message.response.as_ref();
            let written_after = response.and_then(|it| it.prompt_fingerprint.as_deref());
            let is_valid = written_after.is_some_and(|it| prefix.matches(it));
            if message.role == Role::Assistant && !is_valid {
                stale.insert(at);
            }
            add(&mut prefix, message, is_valid);
        }
        Self { stale, fingerprint: Some(prefix.fingerprint()) }
    }

    /// Whether the reasoning of the message at this index may be sent back.
    pub(super) fn allows(&self, at: usize) -> bool {
        !self.stale.contains(&at)
    }
}

/// Whether the service accepts the model's reasoning only while nothing before it has changed.
pub(super) fn binds(dialect: &Dialect, model: &str) -> bool {
    dialect.reasoning_back == ReasoningBack::Details && anthropic::binds_prefix(model)
}

/// Adds a message to the prefix.
fn add(prefix: &mut Prefix, message: &Message, with_reasoning: bool) {
    let who = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    for stored in &message.parts {
        let Part { content, provider_metadata, .. } = &stored.part;
        match content {
            Content::Text(text) | Content::Refusal(text) => prefix.add(who, ["text", text]),
            Content::Reasoning { .. } if with_reasoning => {
                let attached = provider_metadata.as_deref().unwrap_or_default();
                prefix.add(who, ["reasoning", attached]);
            }
            Content::ToolCall(call) => {
                prefix.add(who, ["call", call.id.as_str(), &call.name, &call.arguments]);
            }
            Content::ToolResult(result) => {
                let given = result.texts().chain(result.media().map(identity));
                let named = ["result", result.call.as_str()].into_iter();
                prefix.add(who, named.chain(given));
            }
            Content::Media(media) => prefix.add(who, ["media", identity(media)]),
            Content::Reasoning { .. } | Content::ProviderItem(_) | Content::Unknown(_) => {}
        }
    }
}
