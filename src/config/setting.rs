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

/// A key of the file that can also be given as `--flag` or `CONTEXTD_FLAG`. The default is that of the key.
#[derive(Debug)]
pub struct Setting {
    /// The name of the flag, without the dashes.
    pub flag: &'static str,
    /// The dotted key in the file.
    pub key: &'static str,
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
    /// The help text, one line.
    pub help: &'static str,
    /// The note that the help shows in place of a default: the behavior without a value, or the rule for a default that
    /// depends on the machine.
    pub without_default: Option<&'static str>,
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
    Setting {
        flag: "listen",
        key: "server.listen",
        value_name: "ADDRESS:PORT",
        help: "Address to serve gRPC on; port 0 selects a free port",
        without_default: None,
    },
    Setting {
        flag: "admin-listen",
        key: "server.admin_listen",
        value_name: "ADDRESS:PORT",
        help: "Address to serve health checks and metrics on, in plain text and without credentials",
        without_default: Some("no default: health checks are served on --listen only"),
    },
    Setting {
        flag: "insecure-no-auth",
        key: "server.insecure_no_auth",
        value_name: "BOOL",
        help: "Allow addresses other than loopback without authentication",
        without_default: None,
    },
    Setting {
        flag: "auth-required",
        key: "auth.required",
        value_name: "BOOL",
        help: "Refuse callers without a valid credential",
        without_default: None,
    },
    Setting {
        flag: "keys-file",
        key: "auth.keys_file",
        value_name: "FILE",
        help: "TOML file of API keys; `contextd admin key generate` prints an entry",
        without_default: Some("no default: only the keys in the database"),
    },
    Setting {
        flag: "tls-cert",
        key: "tls.cert_file",
        value_name: "FILE",
        help: "Certificate with its chain (PEM) for TLS",
        without_default: Some("no default: plain text"),
    },
    Setting {
        flag: "tls-key",
        key: "tls.key_file",
        value_name: "FILE",
        help: "Private key (PEM) of --tls-cert",
        without_default: Some("no default: plain text"),
    },
    Setting {
        flag: "tls-client-ca",
        key: "tls.client_ca_file",
        value_name: "FILE",
        help: "Certificate authorities (PEM) of client certificates",
        without_default: Some("no default: client certificates are not requested"),
    },
    Setting {
        flag: "tls-terminated-elsewhere",
        key: "tls.terminated_elsewhere",
        value_name: "BOOL",
        help: "Allow plain text on addresses other than loopback, because a proxy or mesh encrypts",
        without_default: None,
    },
    Setting {
        flag: "database-url",
        key: "database.url",
        value_name: "URL",
        help: "PostgreSQL 14 or later: postgres://user:password@host:port/name; encrypted unless the host is this machine or the URL has ?sslmode=disable",
        without_default: Some("no default: contextd runs an embedded PostgreSQL"),
    },
    Setting {
        flag: "migrate",
        key: "database.migrate_on_start",
        value_name: "BOOL",
        help: "Migrate the schema of --database-url on start; the embedded database is always migrated",
        without_default: None,
    },
    Setting {
        flag: "data-dir",
        key: "embedded.data_dir",
        value_name: "DIR",
        help: "Data directory of the embedded PostgreSQL",
        without_default: Some(DATA_DIR_RULE),
    },
    Setting {
        flag: "pg-bin-dir",
        key: "embedded.bin_dir",
        value_name: "DIR",
        help: "Directory with `postgres` and `initdb` for the embedded PostgreSQL",
        without_default: Some("no default: the usual locations are searched"),
    },
    Setting {
        flag: "lease-ttl",
        key: "turn.lease_ttl",
        value_name: "DURATION",
        help: "How long a turn stays with a replica that sends no heartbeat",
        without_default: None,
    },
    Setting {
        flag: "default-model",
        key: "models.default_model",
        value_name: "PROVIDER/MODEL",
        help: "Model for sessions and turns that do not name one",
        without_default: None,
    },
    Setting {
        flag: "script-dir",
        key: "providers.scripted.script_dir",
        value_name: "DIR",
        help: "Directory of script files for the models `scripted/...`",
        without_default: Some("no default: only the built-in scripts"),
    },
    Setting {
        flag: "log",
        key: "telemetry.log",
        value_name: "FILTER",
        help: "Log filter: a level, or directives such as `info,contextd::turn=debug`",
        without_default: None,
    },
    Setting {
        flag: "log-format",
        key: "telemetry.log_format",
        value_name: "FORMAT",
        help: "Log format: text or json",
        without_default: None,
    },
    Setting {
        flag: "otlp-endpoint",
        key: "telemetry.otlp.endpoint",
        value_name: "URL",
        help: "Collector to which metrics and traces are pushed with OTLP over HTTP, e.g. http://localhost:4318",
        without_default: Some(
            "no default: OTEL_EXPORTER_OTLP_ENDPOINT; without it nothing is pushed",
        ),
    },
];

const DATA_DIR_RULE: &str = if cfg!(target_os = "macos") {
    "default: /var/lib/contextd for root, else ~/Library/Application Support/contextd"
} else {
    "default: /var/lib/contextd for root, else $XDG_DATA_HOME/contextd or ~/.local/share/contextd"
};
