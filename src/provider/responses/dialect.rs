//! The differences between services that implement the Responses API, as a table, so that no other
//! code inspects service names.

use crate::{
    model::service_rules::{CallIdRule, EncryptedReasoning},
    provider::{discovery::Family, http::is_in_domain, rules::ReasoningRule},
};

/// The call ids that all services accept.
pub(super) const CALL_IDS: CallIdRule = CallIdRule::Short;

/// How one kind of service differs from OpenAI's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Name in the configuration.
    pub name: &'static str,
    /// Hosts with this dialect, including subdomains.
    pub hosts: &'static [&'static str],
    /// The header of the API key. `None` means the usual one.
    pub key_header: Option<&'static str>,
    /// Whether the service supports the role `developer`.
    pub developer_role: bool,
    /// Whether `instructions` is a required field.
    pub needs_instructions: bool,
    /// The models for which encrypted reasoning is requested. Only encrypted reasoning can be sent
    /// back.
    pub encrypted_reasoning: EncryptedReasoning,
    /// Whether reasoning is sent back as plain text within its tool loop, because the service does
    /// not encrypt it.
    pub plain_reasoning: bool,
    /// Whether all models are OpenAI's, so that their names determine their capabilities.
    pub openai_models: bool,
    /// Whether models whose levels of effort are unknown reject an effort.
    pub listed_efforts: bool,
    /// Whether the service supports `max_output_tokens` and sampling settings.
    pub limits: bool,
    /// Whether the service supports a prompt cache key.
    pub cache_key: bool,
    /// Whether the response format is sent as the `response_format` of Chat Completions, because
    /// the service ignores `text.format`.
    pub chat_format: bool,
    /// Whether custom tools are server tools, run by the service.
    pub runs_custom_tools: bool,
    /// Whether the service counts the tokens of prompts.
    pub counts: bool,
    /// The service whose rules for counting prompts apply.
    pub counted_as: &'static str,
    /// Whether it is a self-hosted server.
    pub local: bool,
    /// How the service lists its models. `None` if it does not list the models that can be called.
    pub list: Option<Family>,
    /// The media that the service accepts. Whether a model accepts them is a separate question.
    pub media: MediaSupport,
}

impl Dialect {
    /// Which reasoning of earlier responses is sent.
    pub(super) fn reasoning(&self) -> ReasoningRule {
        if self.plain_reasoning {
            ReasoningRule::OWN_IN_LOOP
        } else if self.sends_own_items() {
            ReasoningRule::SIGNED
        } else {
            ReasoningRule::NEVER
        }
    }

    /// Whether items that the model generated are sent back unchanged.
    pub(super) fn sends_own_items(&self) -> bool {
        self.encrypted_reasoning != EncryptedReasoning::Never
    }
}

/// The media that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaSupport {
    /// Images by URL only, without content.
    pub image_urls: bool,
    /// Files, as `input_file`.
    pub files: bool,
    /// Media in tool results. Otherwise they follow the results as a user message.
    pub in_results: bool,
}

/// The dialect assumed for an unknown service.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    hosts: &[],
    key_header: None,
    developer_role: false,
    needs_instructions: false,
    encrypted_reasoning: EncryptedReasoning::Reasoning,
    plain_reasoning: false,
    openai_models: false,
    listed_efforts: false,
    limits: true,
    cache_key: false,
    chat_format: false,
    runs_custom_tools: false,
    counts: false,
    counted_as: "",
    local: false,
    list: Some(Family::Compatible),
    media: MediaSupport { image_urls: true, files: false, in_results: false },
};

/// OpenAI's own dialect.
pub const OPENAI: Dialect = Dialect {
    name: "openai",
    hosts: &["api.openai.com"],
    developer_role: true,
    openai_models: true,
    cache_key: true,
    counts: true,
    counted_as: "openai-responses",
    media: MediaSupport { image_urls: true, files: true, in_results: true },
    ..COMPATIBLE
};

/// All dialects. [`COMPATIBLE`] is used for hosts that match none.
pub const DIALECTS: &[Dialect] = &[
    OPENAI,
    Dialect {
        name: "azure",
        hosts: &["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"],
        key_header: Some("api-key"),
        counts: false,
        // Azure lists models, but calls name deployments.
        list: None,
        ..OPENAI
    },
    Dialect {
        name: "chatgpt",
        hosts: &["chatgpt.com"],
        needs_instructions: true,
        limits: false,
        counts: false,
        list: None,
        ..OPENAI
    },
    Dialect {
        name: "xai",
        counted_as: "xai",
        hosts: &["api.x.ai"],
        listed_efforts: true,
        encrypted_reasoning: EncryptedReasoning::Always,
        cache_key: true,
        runs_custom_tools: true,
        ..COMPATIBLE
    },
    Dialect {
        name: "openrouter",
        counted_as: "openrouter",
        hosts: &["openrouter.ai"],
        encrypted_reasoning: EncryptedReasoning::Always,
        media: MediaSupport { files: true, ..COMPATIBLE.media },
        list: Some(Family::OpenRouter),
        ..COMPATIBLE
    },
    Dialect { name: "deepseek", counted_as: "deepseek", hosts: &["api.deepseek.com"], ..COMPATIBLE },
    Dialect {
        name: "llamacpp",
        counted_as: "llamacpp",
        // As of b11434, llama.cpp passes unknown fields on to Chat Completions and encrypts
        // nothing. The first `reasoning_text` of an item becomes `reasoning_content`.
        chat_format: true,
        plain_reasoning: true,
        counts: true,
        local: true,
        list: Some(Family::LlamaCpp),
        ..COMPATIBLE
    },
    Dialect {
        name: "lmstudio",
        counted_as: "lmstudio",
        local: true,
        media: MediaSupport { image_urls: false, ..COMPATIBLE.media },
        list: Some(Family::LmStudio),
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// The dialect with this name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
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
    fn a_host_tells_the_dialect() {
        let table = [
            ("api.openai.com", "openai"),
            ("eu.api.openai.com", "openai"),
            ("mine.openai.azure.com", "azure"),
            ("chatgpt.com", "chatgpt"),
            ("api.x.ai", "xai"),
            ("api.x.ai.example.org", "compatible"),
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
