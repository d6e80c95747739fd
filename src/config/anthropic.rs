//! The settings of services that speak Anthropic Messages: `kind = "anthropic"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig};

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
            models: BTreeMap::new(),
        }
    }
}

impl AnthropicConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            version,
            prompt_cache: _,
            models,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_url(checks, &key("base_url"), base_url);
        http.check(checks, prefix);
        checks.require(
            base_url != ANTHROPIC || http.has_key("x-api-key"),
            &key("api_key_env"),
            || format!("{ANTHROPIC} wants a key; name the variable that holds it, such as \"ANTHROPIC_API_KEY\""),
        );
        checks.require(http::sendable(version), &key("version"), http::not_sendable);
        for (name, model) in models {
            http::check_model(checks, &key(&format!("models.{name}")), model);
        }
    }
}
