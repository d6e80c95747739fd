//! The settings of services with Gemini's generateContent API: `kind = "gemini"`.

use std::collections::BTreeMap;

use super::http::{self, DefaultService, HttpConfig};
use crate::model::DeclaredModel;
use crate::settings::{Checks, settings};

/// The base URL of Google AI Studio.
const AI_STUDIO: &str = "https://generativelanguage.googleapis.com/v1beta";

settings! {
    /// `kind = "gemini"`: a service with Gemini's generateContent API.
    pub struct GeminiConfig {
        /// Address of the service, without `/models`.
        base_url: String = AI_STUDIO.to_owned();
        /// How the service is reached.
        #[serde(flatten)]
        http: HttpConfig = HttpConfig::default();
        /// Properties of models, by name. Other models can be used too.
        models: BTreeMap<String, DeclaredModel> = BTreeMap::new();
    }
}

/// The service that defines this API.
const DEFAULT_SERVICE: DefaultService =
    DefaultService { base_url: AI_STUDIO, header: "x-goog-api-key", variable: "GEMINI_API_KEY" };

impl GeminiConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { base_url, http, models } = self;
        http::check_service(checks, prefix, base_url, http, &DEFAULT_SERVICE);
        http::check_models(checks, prefix, models);
    }
}
