//! The help of the flags that are settings, from the declarations of the settings.

use std::sync::LazyLock;

use super::{Config, setting::Setting};
use crate::settings::{Declared, Entry, Kind, Section as _};

/// Begins the sentence of a setting's documentation that says what applies if it is not set.
const NOT_SET: &str = " Not set: ";

/// The key whose default depends on the machine.
const DATA_DIR: &str = "embedded.data_dir";

const DATA_DIR_RULE: &str = if cfg!(target_os = "macos") {
    "default: /var/lib/contextd for root, else ~/Library/Application Support/contextd"
} else {
    "default: /var/lib/contextd for root, else $XDG_DATA_HOME/contextd or ~/.local/share/contextd"
};

impl Setting {
    /// The help text of the flag: what the declaration says of the setting.
    pub fn help(&self) -> String {
        let Entry { doc, kind, .. } = self.declaration();
        let text = doc.split(NOT_SET).next().unwrap_or_default();
        let text = text.trim_end_matches('.');
        if let Kind::Choice(names) = kind {
            return format!("{text}: {}", names.join(", "));
        }
        text.to_owned()
    }

    /// The note that the help shows in place of a default: the rule for a default that depends on the machine, or what
    /// applies if the setting is not set. Returns `None` if the setting has a default.
    pub fn without_default(&self) -> Option<String> {
        let Entry { doc, default, .. } = self.declaration();
        if self.key == DATA_DIR {
            return Some(DATA_DIR_RULE.to_owned());
        }
        let absence = doc.split(NOT_SET).nth(1);
        let absence = absence.map(|text| format!("no default: {}", text.trim_end_matches('.')));
        default.is_null().then(|| absence.unwrap_or_else(|| "default: not set".to_owned()))
    }

    /// The declaration of the key.
    fn declaration(&self) -> Entry {
        static DECLARED: LazyLock<Declared> = LazyLock::new(Config::declared);
        let found = DECLARED.find(self.key);
        found.expect("the key of every flag is declared")
    }
}
