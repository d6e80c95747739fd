//! The settings that have a flag and an environment variable of their own.

/// What every variable of contextd starts with.
pub const ENV_PREFIX: &str = "CONTEXTD_";

/// Flags of single commands that are no settings but can be given by a variable too.
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

/// A key of the file that can also be given as `--flag` or `CONTEXTD_FLAG`. Its default is the
/// key's.
#[derive(Debug)]
pub struct Setting {
    /// Name of the flag, without the dashes.
    pub flag: &'static str,
    /// Dotted key in the file.
    pub key: &'static str,
    /// Placeholder of the value in the help.
    pub value_name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// What happens instead when there is no default, or how it is found when it depends on the
    /// machine.
    pub without_default: Option<&'static str>,
}

impl Setting {
    /// The environment variable.
    pub fn variable(&self) -> String {
        variable_of(self.flag)
    }
}

/// The environment variable of a flag: `--data-dir` is `CONTEXTD_DATA_DIR`.
pub fn variable_of(flag: &str) -> String {
    format!("{ENV_PREFIX}{}", flag.replace('-', "_").to_uppercase())
}

/// The most used settings. Everything else is set in the file.
pub const SETTINGS: &[Setting] = &[
    Setting {
        flag: "listen",
        key: "server.listen",
        value_name: "ADDRESS:PORT",
        help: "Where to serve gRPC; port 0 takes a free one",
        without_default: None,
    },
    Setting {
        flag: "admin-listen",
        key: "server.admin_listen",
        value_name: "ADDRESS:PORT",
        help: "Where to serve health for probes and metrics, in plain text and without credentials",
        without_default: Some("no default: only at --listen"),
    },
    Setting {
        flag: "insecure-no-auth",
        key: "server.insecure_no_auth",
        value_name: "BOOL",
        help: "Listen on other addresses than loopback although callers are not authenticated",
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
        without_default: Some("no default: no keys but those in the database"),
    },
    Setting {
        flag: "tls-cert",
        key: "tls.cert_file",
        value_name: "FILE",
        help: "Certificate with its chain (PEM) to serve TLS with",
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
        without_default: Some("no default: clients are not asked for a certificate"),
    },
    Setting {
        flag: "tls-terminated-elsewhere",
        key: "tls.terminated_elsewhere",
        value_name: "BOOL",
        help: "Listen in plain text on other addresses than loopback: a proxy or mesh encrypts",
        without_default: None,
    },
    Setting {
        flag: "database-url",
        key: "database.url",
        value_name: "URL",
        help: "PostgreSQL 14 or later: postgres://user:password@host:port/name; encrypted unless it is on this machine or says ?sslmode=disable",
        without_default: Some("no default: contextd runs a PostgreSQL of its own"),
    },
    Setting {
        flag: "migrate",
        key: "database.migrate_on_start",
        value_name: "BOOL",
        help: "Migrate the schema of --database-url when serving starts; the embedded one always is",
        without_default: None,
    },
    Setting {
        flag: "data-dir",
        key: "embedded.data_dir",
        value_name: "DIR",
        help: "Where the embedded PostgreSQL keeps its data",
        without_default: Some(DATA_DIR_RULE),
    },
    Setting {
        flag: "pg-bin-dir",
        key: "embedded.bin_dir",
        value_name: "DIR",
        help: "Folder with `postgres` and `initdb` for the embedded PostgreSQL",
        without_default: Some("no default: the usual places are searched"),
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
        help: "Model of sessions and turns that name none",
        without_default: None,
    },
    Setting {
        flag: "script-dir",
        key: "providers.scripted.script_dir",
        value_name: "DIR",
        help: "Folder of script files for the models `scripted/...`",
        without_default: Some("no default: the built-in scripts only"),
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
        help: "Collector that metrics and traces are pushed to by OTLP over HTTP, e.g. http://localhost:4318",
        without_default: Some("no default: OTEL_EXPORTER_OTLP_ENDPOINT, else nothing is pushed"),
    },
];

const DATA_DIR_RULE: &str = if cfg!(target_os = "macos") {
    "default: /var/lib/contextd for root, else ~/Library/Application Support/contextd"
} else {
    "default: /var/lib/contextd for root, else $XDG_DATA_HOME/contextd or ~/.local/share/contextd"
};
