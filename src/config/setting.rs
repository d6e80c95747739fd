//! The settings that can also be given as a flag or an environment variable.

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
}

/// The environment variable of a flag: `--data-dir` is `CONTEXTD_DATA_DIR`.
pub fn variable_of(flag: &str) -> String {
    format!("{ENV_PREFIX}{}", flag.replace('-', "_").to_uppercase())
}

/// The settings with a flag and an environment variable. All other settings are set in the file.
pub const SETTINGS: &[Setting] = &[
    Setting { flag: "listen", key: "server.listen", value_name: "ADDRESS:PORT" },
    Setting { flag: "admin-listen", key: "server.admin_listen", value_name: "ADDRESS:PORT" },
    Setting { flag: "insecure-no-auth", key: "server.insecure_no_auth", value_name: "BOOL" },
    Setting { flag: "auth-required", key: "auth.required", value_name: "BOOL" },
    Setting { flag: "keys-file", key: "auth.keys_file", value_name: "FILE" },
    Setting { flag: "tls-cert", key: "tls.cert_file", value_name: "FILE" },
    Setting { flag: "tls-key", key: "tls.key_file", value_name: "FILE" },
    Setting { flag: "tls-client-ca", key: "tls.client_ca_file", value_name: "FILE" },
    Setting { flag: "tls-terminated-elsewhere", key: "tls.terminated_elsewhere", value_name: "BOOL" },
    Setting { flag: "database-url", key: "database.url", value_name: "URL" },
    Setting { flag: "migrate", key: "database.migrate_on_start", value_name: "BOOL" },
    Setting { flag: "data-dir", key: "embedded.data_dir", value_name: "DIR" },
    Setting { flag: "pg-bin-dir", key: "embedded.bin_dir", value_name: "DIR" },
    Setting { flag: "lease-ttl", key: "turn.lease_ttl", value_name: "DURATION" },
    Setting { flag: "default-model", key: "models.default_model", value_name: "PROVIDER/MODEL" },
    Setting { flag: "script-dir", key: "providers.scripted.script_dir", value_name: "DIR" },
    Setting { flag: "log", key: "telemetry.log", value_name: "FILTER" },
    Setting { flag: "log-format", key: "telemetry.log_format", value_name: "FORMAT" },
    Setting { flag: "otlp-endpoint", key: "telemetry.otlp.endpoint", value_name: "URL" },
];
