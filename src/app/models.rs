//! The model services that the settings name.

use std::sync::Arc;

use anyhow::Context as _;
use http::{HeaderName, header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{Config, Environment, ModelConfig, OpenAiConfig, ProviderConfig},
    provider::{
        ModelInfo, Registry,
        http::Settings,
        openai::{OpenAi, dialect},
        scripted::Scripted,
    },
};

/// All of them. Keys are read now and never again.
pub(super) fn registry(config: &Config, environment: &Environment) -> anyhow::Result<Registry> {
    let mut registry = Registry::default();
    for (name, provider) in &config.providers {
        registry = match provider {
            ProviderConfig::Scripted(scripted) => {
                registry.with(name, Arc::new(Scripted::new(name, scripted.script_dir.as_deref())?))
            }
            ProviderConfig::OpenAi(config) => {
                let provider = openai(name, config, environment);
                registry.with(name, Arc::new(provider.with_context(|| format!("providers.{name} cannot be used"))?))
            }
        };
    }
    Ok(registry)
}

fn openai(name: &str, config: &OpenAiConfig, environment: &Environment) -> anyhow::Result<OpenAi> {
    let dialect = match config.dialect {
        Some(dialect) => Some(dialect::named(dialect.name()).context("the dialect is not known")?),
        None => None,
    };
    let settings = Settings {
        base_url: config.base_url.clone(),
        headers: headers(config, config.key(environment)?)?,
        connect_timeout: config.connect_timeout,
        first_byte_timeout: config.first_byte_timeout,
        stall_timeout: config.stall_timeout,
    };
    let provider = OpenAi::new(name, settings, dialect)?.with_developer_role(config.developer_role);
    Ok(config.models.iter().map(|(name, model)| declared(name, model)).fold(provider, OpenAi::with_model))
}

fn headers(config: &OpenAiConfig, key: Option<SecretString>) -> anyhow::Result<Vec<(HeaderName, SecretString)>> {
    let bearer = key.map(|key| SecretString::from(format!("Bearer {}", key.expose_secret())));
    let mut headers: Vec<_> = bearer.into_iter().map(|bearer| (header::AUTHORIZATION, bearer)).collect();
    for (name, value) in [("openai-organization", &config.organization), ("openai-project", &config.project)] {
        headers.extend(value.as_deref().map(|value| (HeaderName::from_static(name), SecretString::from(value))));
    }
    for (name, value) in &config.headers {
        headers.push((name.parse()?, value.clone()));
    }
    Ok(headers)
}

fn declared(name: &str, config: &ModelConfig) -> ModelInfo {
    let ModelConfig { context_window, max_output, supports_tools, display_name } = config;
    ModelInfo {
        name: name.to_owned(),
        display_name: display_name.clone().unwrap_or_else(|| name.to_owned()),
        context_window: *context_window,
        max_output: *max_output,
        supports_tools: *supports_tools,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Dialect;

    #[test]
    fn every_dialect_of_the_settings_is_known_to_the_provider() {
        for dialect in Dialect::ALL {
            assert!(dialect::named(dialect.name()).is_some(), "{}", dialect.name());
        }
        assert_eq!(Dialect::ALL.len(), dialect::DIALECTS.len());
    }
}
