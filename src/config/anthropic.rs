//! The settings of services that speak Anthropic Messages: `kind = "anthropic"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig, OfKind};
use super::rules::AnthropicRules;

/// Where Anthropic itself is.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

/// `kind = "anthropic"`: one service that speaks Anthropic Messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AnthropicConfig {
    /// Where the service is, up to and with `/v1`.
    pub base_url: String,
    /// How it is reached.
    #[serde(flatten)]
    pub http: HttpConfig,
    /// `anthropic-version`: the version of the protocol.
    pub version: String,
    /// How long the service keeps what it has read of a prompt.
    pub prompt_cache: PromptCache,
    /// What it takes, over what the names of its models say.
    pub rules: AnthropicRules,
    /// What is known of models, by name. Others can be used too.
    pub models: BTreeMap<String, Declared>,
}

/// How long a service keeps what it has read of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PromptCache {
    /// It is not asked to keep anything.
    #[serde(rename = "off")]
    Off,
    /// Five minutes from its last use.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// An hour, at a higher price.
    #[serde(rename = "1h")]
    Hour,
}

impl Default for AnthropicConfig {
    fn default() -> Self {
        Self {
            base_url: ANTHROPIC.to_owned(),
            http: HttpConfig::default(),
            version: "2023-06-01".to_owned(),
            prompt_cache: PromptCache::default(),
            rules: AnthropicRules::default(),
            models: BTreeMap::new(),
        }
    }
}

/// The service that defined the protocol.
const OF_KIND: OfKind = OfKind {
    base_url: ANTHROPIC,
    header: "x-api-key",
    variable: "ANTHROPIC_API_KEY",
};

impl AnthropicConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            version,
            prompt_cache: _,
            rules: _,
            models,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_service(checks, prefix, base_url, http, &OF_KIND);
        checks.require(http::sendable(version), &key("version"), http::not_sendable);
        http::check_models(checks, prefix, models);
    }
}
