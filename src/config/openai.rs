//! The settings of services with the Chat Completions API: `kind = "openai"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::http::{self, DefaultService, HttpConfig};
use super::rules::ChatRules;
use crate::model::DeclaredModel;
use crate::settings::{Checks, choices, settings};

/// The base URL of OpenAI.
const OPENAI: &str = "https://api.openai.com/v1";

choices!(Dialect);

settings! {
    /// `kind = "openai"`: a service with the Chat Completions API.
    pub struct OpenAiConfig {
        /// Address of the service, including `/v1`.
        base_url: String = OPENAI.to_owned();
        /// How the service is reached.
        #[serde(flatten)]
        http: HttpConfig = HttpConfig::default();
        /// The dialect of the service. Not set: by the host of `base_url`, else `compatible`.
        dialect: Option<Dialect> = None;
        /// The service whose prompt format is used to count tokens, such as `venice` for a proxy in front of it. Not
        /// set: by the dialect, the host of `base_url` or the provider's name.
        counted_as: Option<String> = None;
        /// `OpenAI-Organization`.
        organization: Option<String> = None;
        /// `OpenAI-Project`.
        project: Option<String> = None;
        /// Send instructions with the role `developer` instead of `system`, for the dialect `openai`.
        developer_role: bool = false;
        /// What the service accepts, overriding its dialect.
        rules: ChatRules = ChatRules::default();
        /// Properties of models, by name. Other models can be used too.
        models: BTreeMap<String, DeclaredModel> = BTreeMap::new();
    }
}

/// The variant of the Chat Completions API that a service implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// All dialects.
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

    /// The name in the configuration file.
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

/// The service that defines this API.
const DEFAULT_SERVICE: DefaultService =
    DefaultService { base_url: OPENAI, header: "authorization", variable: "OPENAI_API_KEY" };

impl OpenAiConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { base_url, http, dialect: _, counted_as: _, organization, project, developer_role: _, rules, models } =
            self;
        http::check_service(checks, prefix, base_url, http, &DEFAULT_SERVICE);
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
            assert_eq!(serde_json::to_value(dialect).expect("a name"), dialect.name());
        }
    }
}
