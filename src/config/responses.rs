//! The settings of services with the Responses API: `kind = "openai-responses"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::http::{self, DefaultService, HttpConfig};
use super::rules::ResponsesRules;
use crate::model::DeclaredModel;
use crate::settings::{Checks, choices, settings};

/// The base URL of OpenAI.
const OPENAI: &str = "https://api.openai.com/v1";

choices!(ResponsesDialect);

settings! {
    /// `kind = "openai-responses"`: a service with the Responses API.
    pub struct ResponsesConfig {
        /// Address of the service, including `/v1`.
        base_url: String = OPENAI.to_owned();
        /// How the service is reached.
        #[serde(flatten)]
        http: HttpConfig = HttpConfig::default();
        /// The dialect of the service. Not set: by the host of `base_url`, else `compatible`.
        dialect: Option<ResponsesDialect> = None;
        /// `api-version` of every request, for Azure.
        api_version: Option<String> = None;
        /// `OpenAI-Organization`.
        organization: Option<String> = None;
        /// `OpenAI-Project`.
        project: Option<String> = None;
        /// What the service accepts, overriding its dialect.
        rules: ResponsesRules = ResponsesRules::default();
        /// Properties of models, by name. Other models can be used too.
        models: BTreeMap<String, DeclaredModel> = BTreeMap::new();
    }
}

/// The variant of the Responses API that a service implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// All dialects.
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

    /// The name in the configuration file.
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

/// The service that defines this API.
const DEFAULT_SERVICE: DefaultService =
    DefaultService { base_url: OPENAI, header: "authorization", variable: "OPENAI_API_KEY" };

impl ResponsesConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { base_url, http, dialect: _, api_version, organization, project, rules: _, models } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_service(checks, prefix, base_url, http, &DEFAULT_SERVICE);
        let plain = |version: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            !version.is_empty() && version.bytes().all(fits)
        };
        checks.require(api_version.as_deref().is_none_or(plain), &key("api_version"), || {
            "must consist of letters, digits, '-', '.' and '_', such as \"preview\"".to_owned()
        });
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
            assert_eq!(serde_json::to_value(dialect).expect("a name"), dialect.name());
        }
    }
}
