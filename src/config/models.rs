//! The settings of choosing a model.

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::provider::ProvidersConfig;

/// `[models]`: which model is used when none is named.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelsConfig {
    /// `PROVIDER/MODEL` for sessions and turns that name no model.
    pub default_model: String,
    /// Add a provider for each well-known variable that holds a key, such as `OPENAI_API_KEY`.
    /// Off: only what the file says.
    pub detect_providers: bool,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self {
            default_model: "scripted/demo".to_owned(),
            detect_providers: true,
        }
    }
}

impl ModelsConfig {
    pub(super) fn check(&self, checks: &mut Checks, providers: &ProvidersConfig) {
        let Self {
            default_model,
            detect_providers: _,
        } = self;
        let key = "models.default_model";
        match default_model.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                checks.require(providers.contains_key(provider), key, || {
                    let known: Vec<_> = providers.keys().map(String::as_str).collect();
                    format!(
                        "no provider `{provider}` is configured; there is {}",
                        known.join(", ")
                    )
                });
            }
            Some(_) | None => checks.fail(
                key,
                format!("`{default_model}` must look like PROVIDER/MODEL"),
            ),
        }
    }
}
