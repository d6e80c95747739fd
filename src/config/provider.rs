//! The settings of model services: `[providers.NAME]` with a `kind`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::anthropic::AnthropicConfig;
use super::check::Checks;
use super::gemini::GeminiConfig;
use super::openai::OpenAiConfig;
use super::responses::ResponsesConfig;

/// The provider that is always there.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// Model services by name; a model is `NAME/model`.
pub type ProvidersConfig = BTreeMap<String, ProviderConfig>;

/// One model service. A new kind is a variant here: its name is the value of `kind` in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ProviderConfig {
    /// Replays script files, without a network or a key.
    Scripted(ScriptedConfig),
    /// Speaks Chat Completions.
    OpenAi(Box<OpenAiConfig>),
    /// Speaks the Responses API.
    #[serde(rename = "openai-responses")]
    Responses(Box<ResponsesConfig>),
    /// Speaks Anthropic Messages.
    Anthropic(Box<AnthropicConfig>),
    /// Speaks Gemini's generateContent.
    Gemini(Box<GeminiConfig>),
}

/// `kind = "scripted"`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScriptedConfig {
    /// Folder of script files, one per model. Absent: the built-in scripts only.
    pub script_dir: Option<PathBuf>,
}

/// The providers that need no configuration.
pub(super) fn shipped_providers() -> ProvidersConfig {
    BTreeMap::from([(
        SCRIPTED_PROVIDER.to_owned(),
        ProviderConfig::Scripted(ScriptedConfig::default()),
    )])
}

impl ProviderConfig {
    pub(super) fn check(&self, checks: &mut Checks, name: &str) {
        let key = format!("providers.{name}");
        checks.require(!name.is_empty() && !name.contains('/'), &key, || {
            "the name of a provider must not be empty or hold a slash: models are named PROVIDER/MODEL".to_owned()
        });
        match self {
            Self::Scripted(ScriptedConfig { script_dir: _ }) => {}
            Self::OpenAi(config) => config.check(checks, &key),
            Self::Responses(config) => config.check(checks, &key),
            Self::Anthropic(config) => config.check(checks, &key),
            Self::Gemini(config) => config.check(checks, &key),
        }
    }
}
