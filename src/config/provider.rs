//! The settings of model services: `[providers.NAME]` with a `kind`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The provider that is always there.
pub const SCRIPTED_PROVIDER: &str = "scripted";

/// Model services by name; a model is `NAME/model`.
pub type ProvidersConfig = BTreeMap<String, ProviderConfig>;

/// One model service. A new kind is a variant here and a value of `kind` in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", try_from = "ProviderTable")]
pub enum ProviderConfig {
    /// Replays script files, without a network or a key.
    Scripted(ScriptedConfig),
}

/// `kind = "scripted"`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScriptedConfig {
    /// Folder of script files, one per model. Absent: the built-in scripts only.
    pub script_dir: Option<PathBuf>,
}

/// The table as it stands in the file, flat, so that unknown keys of it are found like everywhere else.
#[derive(Deserialize)]
struct ProviderTable {
    kind: Kind,
    script_dir: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Scripted,
}

/// The providers that need no configuration.
pub(super) fn shipped_providers() -> ProvidersConfig {
    BTreeMap::from([(SCRIPTED_PROVIDER.to_owned(), ProviderConfig::Scripted(ScriptedConfig::default()))])
}

impl TryFrom<ProviderTable> for ProviderConfig {
    type Error = String;

    fn try_from(table: ProviderTable) -> Result<Self, String> {
        let ProviderTable { kind, script_dir } = table;
        match kind {
            Kind::Scripted => Ok(Self::Scripted(ScriptedConfig { script_dir })),
        }
    }
}
