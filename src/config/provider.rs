//! The settings of model services: `[providers.NAME]` with a `kind`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::anthropic::AnthropicConfig;
use super::gemini::GeminiConfig;
use super::openai::OpenAiConfig;
use super::responses::ResponsesConfig;
use crate::settings::{ByName, Checks, Declared, Kind, Section as _, settings};

/// The name of the built-in provider.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// Model services by name; a model is `NAME/model`.
pub type ProvidersConfig = BTreeMap<String, ProviderConfig>;

/// One model service. Each kind is a variant, whose serialized name is the value of `kind` in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ProviderConfig {
    /// Replays script files, without a network or a key.
    Scripted(ScriptedConfig),
    /// A service with the Chat Completions API.
    OpenAi(Box<OpenAiConfig>),
    /// A service with the Responses API.
    #[serde(rename = "openai-responses")]
    Responses(Box<ResponsesConfig>),
    /// A service with the Anthropic Messages API.
    Anthropic(Box<AnthropicConfig>),
    /// A service with Gemini's generateContent API.
    Gemini(Box<GeminiConfig>),
}

settings! {
    /// `kind = "scripted"`: replays script files, without a network or a key.
    pub struct ScriptedConfig {
        /// Directory of script files, one per model. Not set: the built-in scripts only.
        script_dir: Option<PathBuf> = None;
    }
}

impl ByName for ProviderConfig {
    fn kind_by_name() -> Kind {
        Kind::SectionsByKind(Self::kinds)
    }

    fn check_value(&self, key: &str, checks: &mut Checks) {
        match self {
            Self::Scripted(config) => config.check_ranges(key, checks),
            Self::OpenAi(config) => config.check_ranges(key, checks),
            Self::Responses(config) => config.check_ranges(key, checks),
            Self::Anthropic(config) => config.check_ranges(key, checks),
            Self::Gemini(config) => config.check_ranges(key, checks),
        }
    }
}

impl ProviderConfig {
    /// The settings of each kind.
    fn kinds() -> Vec<(&'static str, Declared)> {
        vec![
            ("scripted", ScriptedConfig::declared()),
            ("openai", OpenAiConfig::declared()),
            ("openai-responses", ResponsesConfig::declared()),
            ("anthropic", AnthropicConfig::declared()),
            ("gemini", GeminiConfig::declared()),
        ]
    }
}

/// The providers that need no configuration.
pub(super) fn shipped_providers() -> ProvidersConfig {
    BTreeMap::from([(SCRIPTED_PROVIDER.to_owned(), ProviderConfig::Scripted(ScriptedConfig::default()))])
}

impl ProviderConfig {
    pub(super) fn check(&self, checks: &mut Checks, name: &str) {
        let key = format!("providers.{name}");
        checks.require(!name.is_empty() && !name.contains('/'), &key, || {
            "the name of a provider must not be empty or contain a slash: models are named PROVIDER/MODEL".to_owned()
        });
        match self {
            Self::Scripted(_) => {}
            Self::OpenAi(config) => config.check(checks, &key),
            Self::Responses(config) => config.check(checks, &key),
            Self::Anthropic(config) => config.check(checks, &key),
            Self::Gemini(config) => config.check(checks, &key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_those_of_the_file() {
        let kinds: Vec<&str> = ProviderConfig::kinds().into_iter().map(|(kind, _)| kind).collect();
        for kind in &kinds {
            let read: Result<ProviderConfig, _> = toml::from_str(&format!("kind = '{kind}'"));
            assert!(read.is_ok(), "{kind}: {read:?}");
        }
        let unknown = toml::from_str::<ProviderConfig>("kind = 'x'").map(drop);
        let error = unknown.expect_err("there is no such kind").to_string();
        let listed = format!("`{}`", kinds.join("`, `"));
        assert!(error.contains(&listed), "{error}");
    }
}
