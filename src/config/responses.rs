//! The settings of services that speak the Responses API: `kind = "openai-responses"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig, OfKind};
use super::rules::ResponsesRules;

/// Where OpenAI itself is.
const OPENAI: &str = "https://api.openai.com/v1";

/// `kind = "openai-responses"`: one service that speaks the Responses API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponsesConfig {
    /// Where the service is, up to and with `/v1`.
    pub base_url: String,
    /// How it is reached.
    #[serde(flatten)]
    pub http: HttpConfig,
    /// What the service speaks. Absent: the host of `base_url` tells, else `compatible`.
    pub dialect: Option<ResponsesDialect>,
    /// `api-version` of every request, as Azure has it.
    pub api_version: Option<String>,
    /// `OpenAI-Organization`.
    pub organization: Option<String>,
    /// `OpenAI-Project`.
    pub project: Option<String>,
    /// What it takes, over what its dialect says.
    pub rules: ResponsesRules,
    /// What is known of models, by name. Others can be used too.
    pub models: BTreeMap<String, Declared>,
}

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of services and servers")]
pub enum ResponsesDialect {
    OpenAi,
    Azure,
    ChatGpt,
    Xai,
    OpenRouter,
    DeepSeek,
    LlamaCpp,
    LmStudio,
    Compatible,
}

impl ResponsesDialect {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::OpenAi,
        Self::Azure,
        Self::ChatGpt,
        Self::Xai,
        Self::OpenRouter,
        Self::DeepSeek,
        Self::LlamaCpp,
        Self::LmStudio,
        Self::Compatible,
    ];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Azure => "azure",
            Self::ChatGpt => "chatgpt",
            Self::Xai => "xai",
            Self::OpenRouter => "openrouter",
            Self::DeepSeek => "deepseek",
            Self::LlamaCpp => "llamacpp",
            Self::LmStudio => "lmstudio",
            Self::Compatible => "compatible",
        }
    }
}

impl Default for ResponsesConfig {
    fn default() -> Self {
        Self {
            base_url: OPENAI.to_owned(),
            http: HttpConfig::default(),
            dialect: None,
            api_version: None,
            organization: None,
            project: None,
            rules: ResponsesRules::default(),
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

impl ResponsesConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            dialect: _,
            api_version,
            organization,
            project,
            rules: _,
            models,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_service(checks, prefix, base_url, http, &OF_KIND);
        let plain = |version: &str| {
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            !version.is_empty() && version.bytes().all(fits)
        };
        checks.require(
            api_version.as_deref().is_none_or(plain),
            &key("api_version"),
            || {
                "a version has letters, digits, '-', '.' and '_' only, such as \"preview\""
                    .to_owned()
            },
        );
        let values = [("organization", organization), ("project", project)];
        http::check_sendable(checks, prefix, values);
        http::check_models(checks, prefix, models);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_of_responses_is_written_as_it_is_called() {
        for dialect in ResponsesDialect::ALL {
            assert_eq!(
                serde_json::to_value(dialect).expect("a name"),
                dialect.name()
            );
        }
    }
}
