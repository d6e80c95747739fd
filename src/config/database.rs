//! The settings of an external PostgreSQL, and of every connection to PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::database_url::{DatabaseUrl, SslMode};
use super::{duration, secret};

/// `[database]`: which PostgreSQL holds everything, and how it is talked to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseConfig {
    /// `postgres://user:password@host:port/name`. Absent: contextd runs a PostgreSQL of its own.
    #[serde(
        default,
        serialize_with = "secret::serialize_url",
        deserialize_with = "secret::deserialize"
    )]
    pub url: Option<SecretString>,
    /// Whether connections are encrypted, where `url` has no `sslmode` of its own: `disable`, `prefer`,
    /// `require`, `verify-ca` or `verify-full`. Absent: `prefer` for addresses of this machine, and
    /// `require` for all others. Where a connection is encrypted the server's certificate is verified,
    /// and that it is for the host of `url`, except with `verify-ca`.
    pub sslmode: Option<SslMode>,
    /// Certificate authorities (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Migrate the schema of the database named by `url` when serving starts. The embedded one
    /// always is.
    pub migrate_on_start: bool,
    /// A pooler that gives each transaction another connection stands between, such as pgbouncer
    /// in transaction mode. Statements are sent without names then, and connections without
    /// settings: the role must have them, see docs/reliability.md.
    pub transaction_pooler: bool,
    /// The database itself shows what is done for a tenant only the rows of that tenant, also to a
    /// statement that forgot to ask for them: by row-level security, which `contextd migrate` sets
    /// up. Connections take the roles `contextd_tenant` and `contextd_worker`, which may change rows
    /// and nothing else. Not beside a transaction pooler.
    pub row_security: bool,
    /// Most connections for requests and turns; two more are kept for heartbeats.
    pub pool_size: usize,
    /// How long a request waits for a free connection.
    #[serde(with = "duration")]
    pub acquire_timeout: Duration,
    /// A connection that nothing has used for this long is closed, so that other replicas can have
    /// it. One of each pool stays.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// While a request has waited for longer than this for a connection, new ones are refused as
    /// OVERLOADED, which takes no time; those that bring a running turn to its end are not.
    #[serde(with = "duration")]
    pub overload_wait: Duration,
    /// How long one statement may take.
    #[serde(with = "duration")]
    pub statement_timeout: Duration,
    /// How long making a connection may take.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: None,
            sslmode: None,
            ca_file: None,
            migrate_on_start: false,
            transaction_pooler: false,
            row_security: false,
            pool_size: 16,
            acquire_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(1),
            overload_wait: Duration::from_millis(250),
            statement_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl DatabaseConfig {
    /// The URL taken apart. `None`: there is none, or its `sslmode` is unknown, which is refused when
    /// the settings are read.
    pub fn parts(&self) -> Option<DatabaseUrl> {
        self.url.as_ref().and_then(DatabaseUrl::of)
    }

    /// Whether the certificate of the server has to be for the host that is connected to.
    pub fn verifies_host_name(&self) -> bool {
        let of_url = self.parts().and_then(|url| url.sslmode);
        of_url.or(self.sslmode) != Some(SslMode::VerifyCa)
    }

    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            url,
            sslmode: _,
            ca_file: _,
            migrate_on_start: _,
            transaction_pooler,
            row_security,
            pool_size,
            acquire_timeout,
            idle_timeout,
            overload_wait,
            statement_timeout,
            connect_timeout,
        } = self;
        checks.require(
            url.as_ref().is_none_or(is_postgres_url),
            "database.url",
            || "must look like postgres://user:password@host:5432/name".to_owned(),
        );
        checks.require(
            url.is_none() || self.parts().is_some(),
            "database.url",
            || format!("has an sslmode that is none of {}", SslMode::names()),
        );
        checks.require(
            !(*row_security && *transaction_pooler),
            "database.row_security",
            || "needs connections that keep their role, which database.transaction_pooler takes away".to_owned(),
        );
        let wait = Duration::from_millis(10)..=Duration::from_mins(10);
        checks.number("database.pool_size", *pool_size, 1..=1000, "connections");
        checks.duration("database.acquire_timeout", *acquire_timeout, wait.clone());
        checks.duration("database.idle_timeout", *idle_timeout, wait.clone());
        checks.duration("database.overload_wait", *overload_wait, wait.clone());
        checks.duration(
            "database.statement_timeout",
            *statement_timeout,
            wait.clone(),
        );
        checks.duration("database.connect_timeout", *connect_timeout, wait);
    }
}

fn is_postgres_url(url: &SecretString) -> bool {
    let url = url.expose_secret();
    ["postgres://", "postgresql://"].iter().any(|scheme| {
        url.strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty())
    })
}
