//! What sets the services apart that speak the Responses API: a table, so that the rest of the code
//! asks no names.

use crate::provider::{
    call_ids::CallIds,
    discovery::Family,
    http::is_in_domain,
    rules::{ReasoningKept, ReasoningOf, ReasoningRule},
};

/// Which ids of calls all of them take.
pub(super) const CALL_IDS: CallIds = CallIds::Short;

/// How one kind of service differs. Everything else is as OpenAI documents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Hosts that speak it, those below them included.
    pub hosts: &'static [&'static str],
    /// The header of the key. `None` means the usual one.
    pub key_header: Option<&'static str>,
    /// Whether the role `developer` is known.
    pub developer_role: bool,
    /// Whether instructions must be given.
    pub needs_instructions: bool,
    /// For which models encrypted reasoning is asked for, which is what goes back.
    pub encrypted_reasoning: Encrypted,
    /// Whether reasoning goes back as plain text, within the tool loop that it belongs to: the service
    /// encrypts none.
    pub plain_reasoning: bool,
    /// Whether all models are OpenAI's: their names tell what they can.
    pub openai_models: bool,
    /// Whether models whose levels of reasoning are not known refuse one.
    pub listed_efforts: bool,
    /// Whether a limit of the answer and randomness can be set.
    pub limits: bool,
    /// Whether a key tells which prompts share a cache.
    pub cache_key: bool,
    /// Whether the form of the answer is the `response_format` of Chat Completions: the service reads
    /// no `text.format`.
    pub chat_format: bool,
    /// Whether custom tools are its own, and run by it.
    pub runs_custom_tools: bool,
    /// Whether it counts prompts.
    pub counts: bool,
    /// As the prompts of which service its own are counted.
    pub counted_as: &'static str,
    /// Whether it is a server that people run themselves.
    pub local: bool,
    /// How it lists its models. `None` means it does not list what can be called.
    pub list: Option<Family>,
    /// Which media it can be sent. Which of them a model takes is the model's matter.
    pub takes: Takes,
}

/// For which models encrypted reasoning is asked for: some services refuse the question for models
/// that do not reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encrypted {
    /// All.
    Always,
    /// Those that are known to reason.
    Reasoning,
    /// None. Nothing goes back as the model made it, but its words and its calls: the service refuses
    /// items without the reasoning that they came with.
    Never,
}

impl Dialect {
    /// Which reasoning of earlier answers is sent.
    pub(super) fn reasoning(&self) -> ReasoningRule {
        if self.plain_reasoning {
            ReasoningRule {
                kept: ReasoningKept::InLoop,
                of: ReasoningOf::SameModel,
            }
        } else if self.takes_own() {
            ReasoningRule::SIGNED
        } else {
            ReasoningRule::NEVER
        }
    }

    /// Whether what the model made goes back as it was.
    pub(super) fn takes_own(&self) -> bool {
        match self.encrypted_reasoning {
            Encrypted::Always | Encrypted::Reasoning => true,
            Encrypted::Never => false,
        }
    }
}

/// Which media a service can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Pictures by their address alone.
    pub addresses: bool,
    /// Files, as `input_file`.
    pub files: bool,
    /// Media in the results of tools; elsewhere they follow the results as a user's message.
    pub in_results: bool,
}

/// What a service of unknown make is taken for.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    hosts: &[],
    key_header: None,
    developer_role: false,
    needs_instructions: false,
    encrypted_reasoning: Encrypted::Reasoning,
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
    takes: Takes {
        addresses: true,
        files: false,
        in_results: false,
    },
};

/// What OpenAI itself speaks.
pub const ORIGINAL: Dialect = Dialect {
    name: "openai",
    hosts: &["api.openai.com"],
    developer_role: true,
    openai_models: true,
    cache_key: true,
    counts: true,
    counted_as: "openai-responses",
    takes: Takes {
        addresses: true,
        files: true,
        in_results: true,
    },
    ..COMPATIBLE
};

/// All of them; the last one is taken for whatever no host tells.
pub const DIALECTS: &[Dialect] = &[
    ORIGINAL,
    Dialect {
        name: "azure",
        hosts: &[
            "openai.azure.com",
            "services.ai.azure.com",
            "cognitiveservices.azure.com",
        ],
        key_header: Some("api-key"),
        counts: false,
        // It lists models, and what is called are deployments.
        list: None,
        ..ORIGINAL
    },
    Dialect {
        name: "chatgpt",
        hosts: &["chatgpt.com"],
        needs_instructions: true,
        limits: false,
        counts: false,
        list: None,
        ..ORIGINAL
    },
    Dialect {
        name: "xai",
        counted_as: "xai",
        hosts: &["api.x.ai"],
        listed_efforts: true,
        encrypted_reasoning: Encrypted::Always,
        cache_key: true,
        runs_custom_tools: true,
        ..COMPATIBLE
    },
    Dialect {
        name: "openrouter",
        counted_as: "openrouter",
        hosts: &["openrouter.ai"],
        encrypted_reasoning: Encrypted::Always,
        takes: Takes {
            files: true,
            ..COMPATIBLE.takes
        },
        list: Some(Family::OpenRouter),
        ..COMPATIBLE
    },
    Dialect {
        name: "deepseek",
        counted_as: "deepseek",
        hosts: &["api.deepseek.com"],
        ..COMPATIBLE
    },
    Dialect {
        name: "llamacpp",
        counted_as: "llamacpp",
        // As of b11434, which hands what it does not know to Chat Completions, and encrypts nothing:
        // the first `reasoning_text` of an item becomes `reasoning_content`.
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
        takes: Takes {
            addresses: false,
            ..COMPATIBLE.takes
        },
        list: Some(Family::LmStudio),
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// The dialect of that name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// The dialect that a host speaks.
pub fn of_host(host: &str) -> &'static Dialect {
    let speaks = |domain: &&str| is_in_domain(host, domain);
    DIALECTS
        .iter()
        .find(|dialect| dialect.hosts.iter().any(speaks))
        .unwrap_or(&COMPATIBLE)
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
