//! The settings of services that speak Gemini's generateContent: `kind = "gemini"`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Declared;

use super::check::Checks;
use super::http::{self, HttpConfig, OfKind};

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

/// The service that defined the protocol.
const OF_KIND: OfKind = OfKind {
    base_url: AI_STUDIO,
    header: "x-goog-api-key",
    variable: "GEMINI_API_KEY",
};

impl GeminiConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            base_url,
            http,
            models,
        } = self;
        http::check_service(checks, prefix, base_url, http, &OF_KIND);
        http::check_models(checks, prefix, models);
    }
}
