//! The settings of services with the Anthropic Messages API: `kind = "anthropic"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::http::{self, DefaultService, HttpConfig};
use super::rules::AnthropicRules;
use crate::model::DeclaredModel;
use crate::settings::{Checks, choices, settings};

/// The base URL of Anthropic.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

choices!(PromptCache);

settings! {
    /// `kind = "anthropic"`: a service with the Anthropic Messages API.
    pub struct AnthropicConfig {
        /// Address of the service, including `/v1`.
        base_url: String = ANTHROPIC.to_owned();
        /// How the service is reached.
        #[serde(flatten)]
        http: HttpConfig = HttpConfig::default();
        /// `anthropic-version`: the version of the protocol.
        version: String = "2023-06-01".to_owned();
        /// How long the service caches prompts.
        prompt_cache: PromptCache = PromptCache::default();
        /// What the service accepts, overriding what is known of its models.
        rules: AnthropicRules = AnthropicRules::default();
        /// Properties of models, by name. Other models can be used too.
        models: BTreeMap<String, DeclaredModel> = BTreeMap::new();
    }
}

/// How long a service caches prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PromptCache {
    /// No caching is requested.
    #[serde(rename = "off")]
    Off,
    /// Five minutes from the last use of a prompt.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// One hour, at a higher price.
    #[serde(rename = "1h")]
    Hour,
}

/// The service that defines this API.
const DEFAULT_SERVICE: DefaultService =
    DefaultService { base_url: ANTHROPIC, header: "x-api-key", variable: "ANTHROPIC_API_KEY" };

impl AnthropicConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { base_url, http, version, prompt_cache: _, rules: _, models } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_service(checks, prefix, base_url, http, &DEFAULT_SERVICE);
        checks.require(http::is_header_value(version), &key("version"), http::invalid_header_value);
        http::check_models(checks, prefix, models);
    }
}
