//! The settings of model services: `[providers.NAME]` with a `kind`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::openai::{Dialect, ModelConfig, OpenAiConfig};
use super::{duration, secret};

/// The provider that is always there.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// Model services by name; a model is `NAME/model`.
pub type ProvidersConfig = BTreeMap<String, ProviderConfig>;

/// One model service. A new kind is a variant here and a value of `kind` in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", try_from = "ProviderTable")]
pub enum ProviderConfig {
    /// Replays script files, without a network or a key.
    Scripted(ScriptedConfig),
    /// Speaks Chat Completions.
    OpenAi(Box<OpenAiConfig>),
}

/// `kind = "scripted"`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScriptedConfig {
    /// Folder of script files, one per model. Absent: the built-in scripts only.
    pub script_dir: Option<PathBuf>,
}

/// The table as it stands in the file, flat, so that unknown keys of it are found like everywhere
/// else.
#[derive(Deserialize)]
struct ProviderTable {
    kind: Kind,
    script_dir: Option<PathBuf>,
    base_url: Option<String>,
    #[serde(default, deserialize_with = "secret::deserialize")]
    api_key: Option<SecretString>,
    api_key_env: Option<String>,
    api_key_file: Option<PathBuf>,
    dialect: Option<Dialect>,
    counted_as: Option<String>,
    organization: Option<String>,
    project: Option<String>,
    #[serde(default, deserialize_with = "secret::deserialize_map")]
    headers: BTreeMap<String, SecretString>,
    developer_role: Option<bool>,
    #[serde(default, deserialize_with = "duration::deserialize_some")]
    connect_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::deserialize_some")]
    first_byte_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::deserialize_some")]
    stall_timeout: Option<Duration>,
    max_request_bytes: Option<u64>,
    #[serde(default)]
    models: BTreeMap<String, ModelConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Scripted,
    OpenAi,
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
        }
    }
}

impl ProviderTable {
    /// The keys that are set but mean nothing to a kind.
    fn refuse(kind: &str, set: &[(&str, bool)]) -> Result<(), String> {
        let set: Vec<_> = set
            .iter()
            .filter(|(_, set)| *set)
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        if set.is_empty() {
            Ok(())
        } else {
            Err(format!("kind `{kind}` has no {}", set.join(", ")))
        }
    }
}

impl TryFrom<ProviderTable> for ProviderConfig {
    type Error = String;

    fn try_from(table: ProviderTable) -> Result<Self, String> {
        let ProviderTable {
            kind,
            script_dir,
            base_url,
            api_key,
            api_key_env,
            api_key_file,
            dialect,
            counted_as,
            organization,
            project,
            headers,
            developer_role,
            connect_timeout,
            first_byte_timeout,
            stall_timeout,
            max_request_bytes,
            models,
        } = table;
        match kind {
            Kind::Scripted => {
                ProviderTable::refuse(
                    "scripted",
                    &[
                        ("base_url", base_url.is_some()),
                        ("api_key", api_key.is_some()),
                        ("api_key_env", api_key_env.is_some()),
                        ("api_key_file", api_key_file.is_some()),
                        ("dialect", dialect.is_some()),
                        ("counted_as", counted_as.is_some()),
                        ("organization", organization.is_some()),
                        ("project", project.is_some()),
                        ("headers", !headers.is_empty()),
                        ("developer_role", developer_role.is_some()),
                        ("connect_timeout", connect_timeout.is_some()),
                        ("first_byte_timeout", first_byte_timeout.is_some()),
                        ("stall_timeout", stall_timeout.is_some()),
                        ("max_request_bytes", max_request_bytes.is_some()),
                        ("models", !models.is_empty()),
                    ],
                )?;
                Ok(Self::Scripted(ScriptedConfig { script_dir }))
            }
            Kind::OpenAi => {
                ProviderTable::refuse("openai", &[("script_dir", script_dir.is_some())])?;
                let shipped = OpenAiConfig::default();
                Ok(Self::OpenAi(Box::new(OpenAiConfig {
                    base_url: base_url.unwrap_or(shipped.base_url),
                    api_key,
                    api_key_env,
                    api_key_file,
                    dialect,
                    counted_as,
                    organization,
                    project,
                    headers,
                    developer_role: developer_role.unwrap_or(shipped.developer_role),
                    connect_timeout: connect_timeout.unwrap_or(shipped.connect_timeout),
                    first_byte_timeout: first_byte_timeout.unwrap_or(shipped.first_byte_timeout),
                    stall_timeout: stall_timeout.unwrap_or(shipped.stall_timeout),
                    max_request_bytes,
                    models,
                })))
            }
        }
    }
}
