//! The differences between services that implement Chat Completions, as a table, so that no other
//! code inspects service names.

use crate::{
    model::service_rules::{CallIdRule, EffortForm, ReasoningBack, ReasoningField},
    provider::{discovery::Family, http::is_in_domain, rules::ReasoningRule},
};

/// How one kind of service differs from OpenAI's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Name in the configuration.
    pub name: &'static str,
    /// Hosts with this dialect, including subdomains.
    pub hosts: &'static [&'static str],
    /// The field that limits the response.
    pub max_tokens: &'static str,
    /// Whether the service supports the role `developer`.
    pub developer_role: bool,
    /// Whether usage must be requested.
    pub asks_for_usage: bool,
    /// Which reasoning is sent back.
    pub reasoning_back: ReasoningBack,
    /// The field for reasoning that is sent back as text.
    pub reasoning_field: ReasoningField,
    /// Whether a placeholder is sent to a reasoning model with tool calls that have no reasoning, if
    /// reasoning is sent back as text.
    pub reasoning_placeholder: bool,
    /// Whether reported reasoning tokens are not included in the reported completion tokens.
    pub reasoning_outside: bool,
    /// The call ids that the service accepts.
    pub call_ids: CallIdRule,
    /// Whether call ids of the model itself are sent back unchanged in any form.
    pub own_call_ids: bool,
    /// The order of messages that the service accepts.
    pub message_order: MessageOrder,
    /// Whether refusals have a separate field.
    pub refusals: bool,
    /// How reasoning effort is sent.
    pub effort: EffortForm,
    /// The field that limits reasoning in tokens. `None` if there is none.
    pub budget: Option<&'static str>,
    /// Whether the service supports `top_k`.
    pub top_k: bool,
    /// The field for the seed.
    pub seed: &'static str,
    /// Whether the service supports a JSON schema for responses.
    pub json_schema: bool,
    /// Limit on the number of stop sequences. `None` if unknown.
    pub max_stops: Option<usize>,
    /// Name prefixes of models that reject stop sequences.
    pub no_stops: &'static [&'static str],
    /// Name prefixes of models that reason by default. While they reason, they reject forced tool
    /// calls; they always reject `temperature` and `top_p`.
    pub reasoning_models: &'static [&'static str],
    /// Name prefixes of those models whose reasoning cannot be disabled.
    pub always_thinking: &'static [&'static str],
    /// Whether it is a self-hosted server.
    pub local: bool,
    /// How the service counts the tokens of a prompt. `None` if it does not.
    pub counter: Option<Counter>,
    /// How the service lists its models.
    pub list: Family,
    /// The media that the service accepts. Whether a model accepts them is a separate question.
    pub media: MediaSupport,
}

/// The media that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaSupport {
    /// Images, as `image_url`.
    pub pictures: bool,
    /// Images by URL only, without content.
    pub image_urls: bool,
    /// Files, as `file`.
    pub files: bool,
    /// Audio, as `input_audio`.
    pub sounds: bool,
    /// Images that its models generated, as `images` of their messages.
    pub own_pictures: bool,
}

/// How a service counts the tokens of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// `/tokenize` accepts messages and tools.
    Prompt,
    /// `/apply-template` renders the prompt as text, and `/tokenize` counts that text.
    Text,
}

impl Dialect {
    /// Which reasoning of earlier responses is sent.
    pub(super) fn reasoning(&self) -> ReasoningRule {
        match self.reasoning_back {
            ReasoningBack::Never => ReasoningRule::NEVER,
            ReasoningBack::InLoop => ReasoningRule::OWN_IN_LOOP,
            ReasoningBack::WhileCalls => ReasoningRule::ALL_WHILE_CALLS,
            // The attached metadata holds the details.
            ReasoningBack::Details => ReasoningRule::SIGNED,
        }
    }

    /// The field for the placeholder of missing reasoning. Returns `None` if no placeholder is
    /// sent.
    pub fn placeholder(&self) -> Option<ReasoningField> {
        let is_text = matches!(self.reasoning_back, ReasoningBack::InLoop | ReasoningBack::WhileCalls);
        (is_text && self.reasoning_placeholder).then_some(self.reasoning_field)
    }
}

/// The order of messages that a service accepts. A self-hosted server depends on its model's chat
/// template, so it is treated as strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOrder {
    /// Any order.
    Any,
    /// No two consecutive user or assistant messages.
    Joined,
    /// As in Mistral's template: system messages first, then alternating user and assistant
    /// messages, starting with the user. Tool messages do not count.
    Strict,
}

/// The dialect assumed for an unknown service.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    hosts: &[],
    max_tokens: "max_tokens",
    developer_role: false,
    asks_for_usage: true,
    reasoning_back: ReasoningBack::Never,
    reasoning_field: ReasoningField::ReasoningContent,
    reasoning_placeholder: false,
    reasoning_outside: false,
    call_ids: CallIdRule::Short,
    own_call_ids: false,
    message_order: MessageOrder::Strict,
    refusals: false,
    effort: EffortForm::Levels,
    budget: None,
    top_k: false,
    seed: "seed",
    json_schema: true,
    max_stops: None,
    no_stops: &[],
    reasoning_models: &[],
    always_thinking: &[],
    local: false,
    counter: None,
    list: Family::Compatible,
    media: MediaSupport { pictures: true, image_urls: true, files: false, sounds: true, own_pictures: false },
};

/// All dialects. [`COMPATIBLE`] is used for hosts that match none.
pub const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "openai",
        hosts: &["api.openai.com"],
        max_tokens: "max_completion_tokens",
        developer_role: true,
        message_order: MessageOrder::Any,
        refusals: true,
        effort: EffortForm::Openai,
        max_stops: Some(4),
        media: MediaSupport { files: true, ..COMPATIBLE.media },
        ..COMPATIBLE
    },
    Dialect {
        name: "openrouter",
        hosts: &["openrouter.ai"],
        reasoning_back: ReasoningBack::Details,
        message_order: MessageOrder::Joined,
        effort: EffortForm::Object,
        top_k: true,
        media: MediaSupport { files: true, own_pictures: true, ..COMPATIBLE.media },
        list: Family::OpenRouter,
        ..COMPATIBLE
    },
    Dialect {
        name: "deepseek",
        hosts: &["api.deepseek.com"],
        reasoning_back: ReasoningBack::WhileCalls,
        reasoning_placeholder: true,
        message_order: MessageOrder::Joined,
        effort: EffortForm::Thinking,
        json_schema: false,
        media: MediaSupport { pictures: false, sounds: false, ..COMPATIBLE.media },
        ..COMPATIBLE
    },
    Dialect {
        name: "groq",
        hosts: &["api.groq.com"],
        reasoning_back: ReasoningBack::InLoop,
        reasoning_field: ReasoningField::Reasoning,
        message_order: MessageOrder::Any,
        max_stops: Some(4),
        ..COMPATIBLE
    },
    Dialect {
        name: "xai",
        hosts: &["api.x.ai"],
        message_order: MessageOrder::Any,
        reasoning_outside: true,
        effort: EffortForm::Listed,
        no_stops: &["grok-4.6"],
        ..COMPATIBLE
    },
    Dialect {
        name: "mistral",
        hosts: &["api.mistral.ai"],
        asks_for_usage: false,
        call_ids: CallIdRule::Nine,
        seed: "random_seed",
        media: MediaSupport { sounds: false, ..COMPATIBLE.media },
        list: Family::Mistral,
        ..COMPATIBLE
    },
    Dialect {
        name: "together",
        hosts: &["api.together.xyz", "api.together.ai"],
        effort: EffortForm::Never,
        top_k: true,
        ..COMPATIBLE
    },
    Dialect { name: "fireworks", hosts: &["api.fireworks.ai"], top_k: true, ..COMPATIBLE },
    Dialect { name: "cerebras", hosts: &["api.cerebras.ai"], message_order: MessageOrder::Any, ..COMPATIBLE },
    Dialect {
        name: "moonshot",
        hosts: &["api.moonshot.ai", "api.moonshot.cn"],
        reasoning_back: ReasoningBack::WhileCalls,
        reasoning_placeholder: true,
        own_call_ids: true,
        message_order: MessageOrder::Any,
        effort: EffortForm::Switch,
        reasoning_models: &["kimi-k2.", "kimi-k2-thinking", "kimi-k3"],
        always_thinking: &["kimi-k2.7-code", "kimi-k2-thinking", "kimi-k3"],
        ..COMPATIBLE
    },
    Dialect {
        name: "zai",
        hosts: &["api.z.ai"],
        reasoning_back: ReasoningBack::InLoop,
        message_order: MessageOrder::Any,
        effort: EffortForm::Switch,
        ..COMPATIBLE
    },
    Dialect { name: "perplexity", hosts: &["api.perplexity.ai"], ..COMPATIBLE },
    Dialect {
        name: "llamacpp",
        reasoning_back: ReasoningBack::InLoop,
        own_call_ids: true,
        effort: EffortForm::Never,
        budget: Some("thinking_budget_tokens"),
        top_k: true,
        local: true,
        counter: Some(Counter::Text),
        list: Family::LlamaCpp,
        ..COMPATIBLE
    },
    Dialect {
        name: "lmstudio",
        reasoning_back: ReasoningBack::InLoop,
        reasoning_field: ReasoningField::Reasoning,
        own_call_ids: true,
        top_k: true,
        local: true,
        media: MediaSupport { image_urls: false, sounds: false, ..COMPATIBLE.media },
        list: Family::LmStudio,
        ..COMPATIBLE
    },
    Dialect {
        name: "ollama",
        reasoning_back: ReasoningBack::InLoop,
        reasoning_field: ReasoningField::Reasoning,
        own_call_ids: true,
        local: true,
        media: MediaSupport { image_urls: false, sounds: false, ..COMPATIBLE.media },
        list: Family::Ollama,
        ..COMPATIBLE
    },
    Dialect {
        name: "vllm",
        reasoning_back: ReasoningBack::InLoop,
        reasoning_field: ReasoningField::Reasoning,
        own_call_ids: true,
        budget: Some("thinking_token_budget"),
        top_k: true,
        local: true,
        counter: Some(Counter::Prompt),
        list: Family::Server,
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// Services without a dialect that add their own text to prompts, by host suffix.
const SERVICES: &[(&str, &str)] = &[("api.venice.ai", "venice"), ("aiplatform.googleapis.com", "gemini-vertex")];

/// The service at a host, if it does not follow from the dialect. Returns `None` if unknown.
pub fn service_of_host(host: &str) -> Option<&'static str> {
    let ends = |end: &str| host.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with(['.', '-']));
    SERVICES.iter().find(|(end, _)| ends(end)).map(|(_, service)| *service)
}

/// The dialect with this name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// OpenAI's own dialect.
pub fn openai() -> &'static Dialect {
    named("openai").unwrap_or(&COMPATIBLE)
}

/// The dialect for a host.
pub fn of_host(host: &str) -> &'static Dialect {
    let speaks = |it: &&Dialect| it.hosts.iter().any(|domain| is_in_domain(host, domain));
    DIALECTS.iter().find(speaks).unwrap_or(&COMPATIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_is_detected_by_host_and_defaults_to_compatible() {
        let table = [
            ("api.openai.com", "openai"),
            ("eu.api.openai.com", "openai"),
            ("api.openai.com.example.org", "compatible"),
            ("notopenrouter.ai", "compatible"),
            ("openrouter.ai", "openrouter"),
            ("api.mistral.ai", "mistral"),
            ("127.0.0.1", "compatible"),
        ];
        for (host, expected) in table {
            assert_eq!(of_host(host).name, expected, "{host}");
        }
    }

    #[test]
    fn every_dialect_is_found_by_its_name() {
        for dialect in DIALECTS {
            assert_eq!(named(dialect.name), Some(dialect));
        }
        assert_eq!(named("klingon"), None);
    }
}
