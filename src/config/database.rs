//! The settings of an external PostgreSQL, and of all connections to PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use super::database_url::{DatabaseUrl, SslMode};
use crate::settings::{Checks, SecretUrl, choices, settings};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
/// The shortest timeout.
const MIN: Duration = Duration::from_millis(10);

choices!(SslMode);

settings! {
    /// `[database]`: the PostgreSQL that stores all data, and the connections to it.
    pub struct DatabaseConfig {
        /// PostgreSQL 14 or later: `postgres://user:password@host:port/name`. Not set: contextd runs an embedded
        /// PostgreSQL.
        url: Option<SecretUrl> = None;
        /// Whether connections are encrypted, if `url` has no `sslmode`. Not set: `prefer` for addresses of this
        /// machine, `require` for all others. On encrypted connections the server's certificate is verified. It must
        /// match the host of `url`, except with `verify-ca`.
        sslmode: Option<SslMode> = None;
        /// Certificate authorities (PEM) to trust instead of the system's.
        ca_file: Option<PathBuf> = None;
        /// Migrate the schema of the database at `database.url` on start. The embedded one is always migrated.
        migrate_on_start: bool = false;
        /// A pooler in transaction mode, such as pgbouncer, is in front of the database. Statements are then sent
        /// without names and connections without settings: the role must have them, see docs/reliability.md.
        transaction_pooler: bool = false;
        /// Restrict statements for a tenant to the rows of that tenant with row-level security, which `contextd
        /// migrate` sets up. Connections use the roles `contextd_tenant` and `contextd_worker`, which may change rows
        /// and nothing else. Cannot be combined with a transaction pooler.
        row_security: bool = false;
        /// Maximum connections for requests and turns. Two more are kept for heartbeats.
        pool_size: usize = 16, in 1..=1000, "connections";
        /// How long a request waits for a free connection.
        acquire_timeout: Duration = SECOND * 5, in MIN..=MINUTE * 10;
        /// How long a connection may be idle before it is closed, so that other replicas can use it. Each pool keeps
        /// one.
        idle_timeout: Duration = MINUTE, in MIN..=MINUTE * 10;
        /// If a request has waited this long for a connection, new requests are refused as OVERLOADED at once, except
        /// those that finish a running turn.
        overload_wait: Duration = Duration::from_millis(250), in MIN..=MINUTE * 10;
        /// How long one statement may take.
        statement_timeout: Duration = SECOND * 10, in MIN..=MINUTE * 10;
        /// How long connecting may take.
        connect_timeout: Duration = SECOND * 5, in MIN..=MINUTE * 10;
    }
}

impl DatabaseConfig {
    /// The URL, with its `sslmode` separated. Returns `None` if there is no URL, or if its `sslmode` is unknown, which
    /// is rejected when the settings are loaded.
    pub fn parts(&self) -> Option<DatabaseUrl> {
        self.url.as_ref().and_then(DatabaseUrl::of)
    }

    /// Whether the server's certificate must match the host name of the connection.
    pub fn verifies_host_name(&self) -> bool {
        let of_url = self.parts().and_then(|url| url.sslmode);
        of_url.or(self.sslmode) != Some(SslMode::VerifyCa)
    }

    pub(super) fn check(&self, checks: &mut Checks) {
        let url = &self.url;
        checks.require(url.as_ref().is_none_or(is_postgres_url), "database.url", || {
            "must look like postgres://user:password@host:5432/name".to_owned()
        });
        checks.require(url.is_none() || self.parts().is_some(), "database.url", || {
            format!("has an unknown sslmode; use one of {}", SslMode::names())
        });
        checks.require(
            !(self.row_security && self.transaction_pooler),
            "database.row_security",
            || "cannot be combined with database.transaction_pooler: row-level security needs connections that keep their role".to_owned(),
        );
    }
}

fn is_postgres_url(url: &SecretUrl) -> bool {
    let url = url.expose();
    ["postgres://", "postgresql://"].iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}
