//! The settings of services that speak Chat Completions: `kind = "openai"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig, OfKind};
use super::rules::ChatRules;

/// Where OpenAI itself is.
const OPENAI: &str = "https://api.openai.com/v1";

/// `kind = "openai"`: one service that speaks Chat Completions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenAiConfig {
    /// Where the service is, up to and with `/v1`.
    pub base_url: String,
    /// How it is reached.
    #[serde(flatten)]
    pub http: HttpConfig,
    /// What the service speaks. Absent: the host of `base_url` tells, else `compatible`.
    pub dialect: Option<Dialect>,
    /// The service whose prompts these are counted as, such as `venice` for a proxy in front of
    /// it. Absent: the dialect, the host of `base_url` or the provider's name tells.
    pub counted_as: Option<String>,
    /// `OpenAI-Organization`.
    pub organization: Option<String>,
    /// `OpenAI-Project`.
    pub project: Option<String>,
    /// Give instructions under the role `developer` instead of `system`, for the dialect `openai`.
    pub developer_role: bool,
    /// What it takes, over what its dialect says.
    pub rules: ChatRules,
    /// What is known of models, by name. Others can be used too.
    pub models: BTreeMap<String, Declared>,
}

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of services and servers")]
pub enum Dialect {
    OpenAi,
    OpenRouter,
    DeepSeek,
    Groq,
    Xai,
    Mistral,
    Together,
    Fireworks,
    Cerebras,
    Moonshot,
    Zai,
    Perplexity,
    LlamaCpp,
    LmStudio,
    Ollama,
    Vllm,
    Compatible,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::OpenAi,
        Self::OpenRouter,
        Self::DeepSeek,
        Self::Groq,
        Self::Xai,
        Self::Mistral,
        Self::Together,
        Self::Fireworks,
        Self::Cerebras,
        Self::Moonshot,
        Self::Zai,
        Self::Perplexity,
        Self::LlamaCpp,
        Self::LmStudio,
        Self::Ollama,
        Self::Vllm,
        Self::Compatible,
    ];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenRouter => "openrouter",
            Self::DeepSeek => "deepseek",
            Self::Groq => "groq",
            Self::Xai => "xai",
            Self::Mistral => "mistral",
            Self::Together => "together",
            Self::Fireworks => "fireworks",
            Self::Cerebras => "cerebras",
            Self::Moonshot => "moonshot",
            Self::Zai => "zai",
            Self::Perplexity => "perplexity",
            Self::LlamaCpp => "llamacpp",
            Self::LmStudio => "lmstudio",
            Self::Ollama => "ollama",
            Self::Vllm => "vllm",
            Self::Compatible => "compatible",
        }
    }
}

impl Default for OpenAiConfig {
    fn default() -> Self {
        Self {
            base_url: OPENAI.to_owned(),
            http: HttpConfig::default(),
            dialect: None,
            counted_as: None,
            organization: None,
            project: None,
            developer_role: false,
            rules: ChatRules::default(),
            models: BTreeMap::new(),
        }
    }
}

/// The service that defined the protocol.
const OF_KIND: OfKind = OfKind {
    base_url: OPENAI,
    header: "authorization",
    variable: "OPENAI_API_KEY",
};

impl OpenAiConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            dialect: _,
            counted_as: _,
            organization,
            project,
            developer_role: _,
            rules,
            models,
        } = self;
        http::check_service(checks, prefix, base_url, http, &OF_KIND);
        let values = [("organization", organization), ("project", project)];
        http::check_sendable(checks, prefix, values);
        rules.check(checks, prefix);
        http::check_models(checks, prefix, models);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_written_as_it_is_called() {
        for dialect in Dialect::ALL {
            assert_eq!(
                serde_json::to_value(dialect).expect("a name"),
                dialect.name()
            );
        }
    }
}
