//! The settings of choosing a model, and of knowing which there are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;
use super::provider::ProvidersConfig;
use crate::model::config::is_model_reference;

/// `[models]`: which model is used when none is named, and how models are discovered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelsConfig {
    /// `PROVIDER/MODEL` for sessions and turns that name no model.
    pub default_model: String,
    /// Add a provider for each well-known variable that holds a key, such as `OPENAI_API_KEY`.
    /// Off: only what the file says.
    pub detect_providers: bool,
    /// Ask the services which models they have, and what those can do.
    pub discover: bool,
    /// How often servers nearby are asked, whose windows change when they are started anew. Services
    /// that others run are asked once an hour, or as seldom as this.
    #[serde(with = "duration")]
    pub refresh_interval: Duration,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self {
            default_model: "scripted/demo".to_owned(),
            detect_providers: true,
            discover: true,
            refresh_interval: Duration::from_mins(1),
        }
    }
}

impl ModelsConfig {
    pub(super) fn check(&self, checks: &mut Checks, providers: &ProvidersConfig) {
        let Self {
            default_model,
            detect_providers: _,
            discover: _,
            refresh_interval,
        } = self;
        checks.duration(
            "models.refresh_interval",
            *refresh_interval,
            Duration::from_secs(5)..=Duration::from_hours(24),
        );
        check_reference("models.default_model", default_model, checks, providers);
    }
}

/// A reference has to name a configured provider. Which models it has is not known yet.
pub(super) fn check_reference(
    key: &str,
    reference: &str,
    checks: &mut Checks,
    providers: &ProvidersConfig,
) {
    match reference.split_once('/') {
        Some((provider, _)) if is_model_reference(reference) => {
            checks.require(providers.contains_key(provider), key, || {
                let known: Vec<_> = providers.keys().map(String::as_str).collect();
                format!(
                    "no provider `{provider}` is configured; there is {}",
                    known.join(", ")
                )
            });
        }
        Some(_) | None => {
            checks.fail(key, format!("`{reference}` must look like PROVIDER/MODEL"));
        }
    }
}
