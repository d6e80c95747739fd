//! The settings that can also be given as a flag or an environment variable.

use std::sync::LazyLock;

use super::Config;
use crate::settings::{Declared, Entry, Kind, Section as _};

/// The prefix of contextd's environment variables.
pub const ENV_PREFIX: &str = "CONTEXTD_";

/// Flags of individual commands. They are not settings, but can also be given as an environment variable.
pub const COMMAND_FLAGS: &[&str] = &[
    "access",
    "address",
    "api-key",
    "approve-tools",
    "ca-file",
    "config",
    "key-name",
    "metadata",
    "model",
    "most",
    "once",
    "output",
    "prefix",
    "requests-per-second",
    "running-turns",
    "scenario",
    "service",
    "session",
    "state",
    "stored-bytes",
    "system",
    "tenant",
    "timeout",
    "tokens-per-minute",
    "ttl",
    "url",
];

/// A key of the file that can also be given as `--flag` or `CONTEXTD_FLAG`. Its documentation and its default are those
/// of the key.
#[derive(Debug)]
pub struct Setting {
    /// The name of the flag, without the dashes.
    pub flag: &'static str,
    /// The dotted key in the file.
    pub key: &'static str,
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
}

impl Setting {
    /// The name of the environment variable.
    pub fn variable(&self) -> String {
        variable_of(self.flag)
    }

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
        default
            .is_null()
            .then(|| absence.unwrap_or_else(|| "default: not set".to_owned()))
    }

    /// The declaration of the key.
    fn declaration(&self) -> Entry {
        static DECLARED: LazyLock<Declared> = LazyLock::new(Config::declared);
        let found = DECLARED.find(self.key);
        found.expect("the key of every flag is declared")
    }
}

/// The environment variable of a flag: `--data-dir` is `CONTEXTD_DATA_DIR`.
pub fn variable_of(flag: &str) -> String {
    format!("{ENV_PREFIX}{}", flag.replace('-', "_").to_uppercase())
}

/// The settings with a flag and an environment variable. All other settings are set in the file.
pub const SETTINGS: &[Setting] = &[
    Setting {
        flag: "listen",
        key: "server.listen",
        value_name: "ADDRESS:PORT",
    },
    Setting {
        flag: "admin-listen",
        key: "server.admin_listen",
        value_name: "ADDRESS:PORT",
    },
    Setting {
        flag: "insecure-no-auth",
        key: "server.insecure_no_auth",
        value_name: "BOOL",
    },
    Setting {
        flag: "auth-required",
        key: "auth.required",
        value_name: "BOOL",
    },
    Setting {
        flag: "keys-file",
        key: "auth.keys_file",
        value_name: "FILE",
    },
    Setting {
        flag: "tls-cert",
        key: "tls.cert_file",
        value_name: "FILE",
    },
    Setting {
        flag: "tls-key",
        key: "tls.key_file",
        value_name: "FILE",
    },
    Setting {
        flag: "tls-client-ca",
        key: "tls.client_ca_file",
        value_name: "FILE",
    },
    Setting {
        flag: "tls-terminated-elsewhere",
        key: "tls.terminated_elsewhere",
        value_name: "BOOL",
    },
    Setting {
        flag: "database-url",
        key: "database.url",
        value_name: "URL",
    },
    Setting {
        flag: "migrate",
        key: "database.migrate_on_start",
        value_name: "BOOL",
    },
    Setting {
        flag: "data-dir",
        key: DATA_DIR,
        value_name: "DIR",
    },
    Setting {
        flag: "pg-bin-dir",
        key: "embedded.bin_dir",
        value_name: "DIR",
    },
    Setting {
        flag: "lease-ttl",
        key: "turn.lease_ttl",
        value_name: "DURATION",
    },
    Setting {
        flag: "default-model",
        key: "models.default_model",
        value_name: "PROVIDER/MODEL",
    },
    Setting {
        flag: "script-dir",
        key: "providers.scripted.script_dir",
        value_name: "DIR",
    },
    Setting {
        flag: "log",
        key: "telemetry.log",
        value_name: "FILTER",
    },
    Setting {
        flag: "log-format",
        key: "telemetry.log_format",
        value_name: "FORMAT",
    },
    Setting {
        flag: "otlp-endpoint",
        key: "telemetry.otlp.endpoint",
        value_name: "URL",
    },
];

/// Begins the sentence of a setting's documentation that says what applies if it is not set.
const NOT_SET: &str = " Not set: ";

/// The key whose default depends on the machine.
const DATA_DIR: &str = "embedded.data_dir";

const DATA_DIR_RULE: &str = if cfg!(target_os = "macos") {
    "default: /var/lib/contextd for root, else ~/Library/Application Support/contextd"
} else {
    "default: /var/lib/contextd for root, else $XDG_DATA_HOME/contextd or ~/.local/share/contextd"
};
