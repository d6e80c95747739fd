//! The settings of model selection and discovery.

use std::time::Duration;

use super::provider::ProvidersConfig;
use crate::model::config::is_model_reference;
use crate::settings::{Checks, settings};

settings! {
    /// `[models]`: which model is used by default, and how models are discovered.
    pub struct ModelsConfig {
        /// `PROVIDER/MODEL` of sessions and turns that name no model.
        default_model: String = "scripted/demo".to_owned();
        /// Add a provider for each well-known environment variable that holds an API key, such as `OPENAI_API_KEY`.
        detect_providers: bool = true;
        /// Query the services for their models and the models' properties.
        discover: bool = true;
        /// How often local servers are queried, whose windows change when they restart. Other services are queried
        /// once an hour, or at this interval if it is longer.
        refresh_interval: Duration = Duration::from_mins(1), in Duration::from_secs(5)..=Duration::from_hours(24);
    }
}

impl ModelsConfig {
    pub(super) fn check(&self, checks: &mut Checks, providers: &ProvidersConfig) {
        check_reference("models.default_model", &self.default_model, checks, providers);
    }
}

/// Checks that a model reference names a configured provider. The models of the provider are not known yet.
pub(super) fn check_reference(key: &str, reference: &str, checks: &mut Checks, providers: &ProvidersConfig) {
    match reference.split_once('/') {
        Some((provider, _)) if is_model_reference(reference) => {
            checks.require(providers.contains_key(provider), key, || {
                let known: Vec<_> = providers.keys().map(String::as_str).collect();
                format!("no provider `{provider}` is configured; configured providers: {}", known.join(", "))
            });
        }
        Some(_) | None => {
            checks.fail(key, format!("`{reference}` must look like PROVIDER/MODEL"));
        }
    }
}
