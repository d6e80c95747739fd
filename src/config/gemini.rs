//! The settings of services that speak Gemini's generateContent: `kind = "gemini"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig};

/// Where Google AI Studio is.
const AI_STUDIO: &str = "https://generativelanguage.googleapis.com/v1beta";

/// `kind = "gemini"`: one service that speaks generateContent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct GeminiConfig {
    /// Where the service is, up to what comes before `/models`.
    pub base_url: String,
    /// How it is reached.
    #[serde(flatten)]
    pub http: HttpConfig,
    /// What is known of models, by name. Others can be used too.
    pub models: BTreeMap<String, Declared>,
}

impl Default for GeminiConfig {
    fn default() -> Self {
        Self {
            base_url: AI_STUDIO.to_owned(),
            http: HttpConfig::default(),
            models: BTreeMap::new(),
        }
    }
}

impl GeminiConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            models,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        http::check_url(checks, &key("base_url"), base_url);
        http.check(checks, prefix);
        checks.require(
            base_url != AI_STUDIO || http.has_key("x-goog-api-key"),
            &key("api_key_env"),
            || format!("{AI_STUDIO} wants a key; name the variable that holds it, such as \"GEMINI_API_KEY\""),
        );
        for (name, model) in models {
            http::check_model(checks, &key(&format!("models.{name}")), model);
        }
    }
}
