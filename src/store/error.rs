//! Errors of the store, classified by how callers must react.

use std::fmt::Write as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::model::{Seq, TenantId};

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, or its response was lost. The outcome is unknown; the operation may be repeated.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The database responds, but has a problem that only an operator can fix.
    #[error("{0}: {1}")]
    Outage(Outage, String),
    /// The database refuses connections for a reason that only an operator can fix, such as a wrong password or a
    /// missing database.
    #[error("the database refuses connections: {0}")]
    Refused(String),
    /// The wait for a free connection timed out.
    #[error("timed out while waiting for a database connection")]
    Busy,
    /// A deadlock or serialization conflict persisted after retries.
    #[error("the database keeps aborting a transaction: {0}")]
    Conflict(String),
    /// A unique key already exists. Contains the name of the constraint.
    #[error("a row with this key already exists: {0}")]
    Duplicate(String),
    /// The schema does not match this program.
    #[error("{0}")]
    Schema(String),
    /// Events after the cursor were removed by retention.
    #[error("events after the cursor were removed; the oldest kept event has seq {oldest}")]
    EventsExpired {
        /// Seq of the oldest kept event, or of the next event if none is kept.
        oldest: Seq,
    },
    /// A stored row cannot be decoded.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// A statement was run in a task without a row-security scope, while row security is on. This is a bug in contextd.
    #[error("internal: no row-security scope set")]
    NoRowSecurityScope,
    /// The tenant is being deleted, or was deleted since the call was admitted.
    #[error("the tenant {0} is being deleted")]
    TenantDeleted(TenantId),
    /// Any other error: a bug in contextd or in the database.
    #[error("the database refused a statement: {}", cause(.0))]
    // Not a `source`: chains of causes are logged, and the message may contain user content.
    Broken(tokio_postgres::Error),
}

/// A problem of a database that still responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Outage {
    /// No connection is left for this role, or on the server.
    #[error("the database has no connection left")]
    NoConnectionLeft,
    #[error("the database's disk is full")]
    DiskFull,
    /// The server cannot load its own files, as after its package was upgraded while it ran.
    #[error("the database server cannot load its own files; restart it")]
    ServerBroken,
    /// Prepared statements of other connections were found: a pooler assigns a connection per transaction.
    #[error("a pooler assigns connections per transaction; set database.transaction_pooler = true")]
    TransactionPooler,
}

impl Outage {
    /// Returns its name, as used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoConnectionLeft => "no_connection_left",
            Self::DiskFull => "disk_full",
            Self::ServerBroken => "server_broken",
            Self::TransactionPooler => "transaction_pooler",
        }
    }

    /// Classifies a database error as an outage.
    fn of(error: &DbError) -> Option<Self> {
        let code = error.code();
        if *code == SqlState::TOO_MANY_CONNECTIONS {
            Some(Self::NoConnectionLeft)
        } else if *code == SqlState::DISK_FULL {
            Some(Self::DiskFull)
        } else if *code == SqlState::UNDEFINED_FILE || is_of_loader(error.routine()) {
            Some(Self::ServerBroken)
        } else if [SqlState::DUPLICATE_PSTATEMENT, SqlState::INVALID_SQL_STATEMENT_NAME].contains(code) {
            Some(Self::TransactionPooler)
        } else if *code == SqlState::PROTOCOL_VIOLATION {
            Self::of_protocol(error.message())
        } else {
            None
        }
    }

    /// Classifies a protocol violation by its message, since most errors of pgbouncer have this code.
    fn of_protocol(message: &str) -> Option<Self> {
        if message.contains("startup parameter") || message.contains("prepared statement") {
            Some(Self::TransactionPooler)
        } else if message.contains("no more connections allowed") {
            Some(Self::NoConnectionLeft)
        } else {
            None
        }
    }
}

/// Whether the error was raised by PostgreSQL's library loader.
fn is_of_loader(routine: Option<&str>) -> bool {
    routine.is_some_and(|routine| {
        ["internal_load_library", "incompatible_module_error", "load_external_function"].contains(&routine)
    })
}

impl Error {
    /// Whether the same operation may succeed when it is repeated.
    pub fn is_transient(&self) -> bool {
        let (_, is_transient, _) = self.class();
        is_transient
    }

    /// Returns the outage that an operator must fix, if known.
    pub fn outage(&self) -> Option<Outage> {
        if let Self::Outage(outage, _) = self { Some(*outage) } else { None }
    }

    /// A short name of its kind, for metrics and logs.
    pub(super) fn kind(&self) -> &'static str {
        let (name, _, _) = self.class();
        name
    }

    /// Whether the error leaves its connection in an unknown state. True for everything except errors that the database
    /// reported for a statement.
    pub(super) fn spoils_connection(&self) -> bool {
        let (_, _, spoils_connection) = self.class();
        spoils_connection
    }

    /// Its name, whether a repetition may succeed, and whether it leaves its connection in an unknown state.
    fn class(&self) -> (&'static str, bool, bool) {
        match self {
            Self::Unavailable(_) => ("unavailable", true, true),
            Self::Outage(outage, _) => (outage.name(), true, true),
            Self::Refused(_) => ("refused", true, true),
            Self::Busy => ("busy", true, false),
            Self::Conflict(_) => ("conflict", true, false),
            Self::Duplicate(_) => ("duplicate", false, false),
            Self::Schema(_) => ("schema", false, false),
            Self::EventsExpired { .. } => ("events_expired", false, false),
            Self::Corrupt(_) => ("corrupt", false, false),
            Self::NoRowSecurityScope => ("no_reach", false, false),
            Self::TenantDeleted(_) => ("tenant_deleted", false, false),
            Self::Broken(error) => ("broken", false, error.as_db_error().is_none()),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else {
            return if error.is_closed()
                || std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>())
            {
                Self::Unavailable(error.to_string())
            } else {
                Self::Broken(error)
            };
        };
        let code = database.code();
        let toolset_removed = *code == SqlState::FOREIGN_KEY_VIOLATION && database.constraint() == Some(TOOLSET);
        if is_conflict(code) || toolset_removed {
            Self::Conflict(described(database))
        } else if *code == SqlState::UNIQUE_VIOLATION {
            Self::Duplicate(database.constraint().unwrap_or_default().to_owned())
        } else if let Some(outage) = Outage::of(database) {
            Self::Outage(outage, described(database))
        } else if is_outage(code) {
            Self::Unavailable(described(database))
        } else {
            Self::Broken(error)
        }
    }
}

/// The constraint that rejects a configuration whose tool set is being removed concurrently. A retry stores the tool
/// set again.
const TOOLSET: &str = "session_revisions_toolset";

/// Conflicts with other transactions: a deadlock, a serialization failure, or a lock timeout.
fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::LOCK_NOT_AVAILABLE].contains(code)
}

/// Classes 08 (connection), 53 (resources) and 57 (operator intervention: shutdown, cancel); system errors such as disk
/// errors; writes on a standby; and a transaction left open after its response was lost.
fn is_outage(code: &SqlState) -> bool {
    ["08", "53", "57", "58"].iter().any(|class| code.code().starts_with(class))
        || [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IN_FAILED_SQL_TRANSACTION].contains(code)
}

/// Classifies a failed connect: permanent until an operator changes something, or temporary.
pub(super) fn refused(error: &tokio_postgres::Error) -> Error {
    if let Some(problem) = refused_tls(error) {
        return Error::Refused(problem);
    }
    if let Some((outage, database)) = error.as_db_error().and_then(|database| Some((Outage::of(database)?, database))) {
        return Error::Outage(outage, described(database));
    }
    let for_good = error.as_db_error().is_some_and(|error| {
        let code = error.code();
        code.code().starts_with("28") // invalid authorization
            || [SqlState::INVALID_CATALOG_NAME, SqlState::PROTOCOL_VIOLATION].contains(code)
    });
    if for_good { Error::Refused(cause(error)) } else { Error::Unavailable(cause(error)) }
}

/// Why TLS failed, if the network is not the cause: the server does not support TLS, or its certificate is refused.
fn refused_tls(error: &tokio_postgres::Error) -> Option<String> {
    const HANDSHAKE: &str = "error performing TLS handshake";
    let source = std::error::Error::source(error)?;
    let lost =
        source.downcast_ref::<std::io::Error>().is_some_and(|source| source.kind() != std::io::ErrorKind::InvalidData);
    (error.to_string() == HANDSHAKE && !lost).then(|| {
        format!(
            "the TLS handshake failed: {source}; check database.ca_file, and database.sslmode or sslmode in the URL"
        )
    })
}

/// The driver's message is only "db error"; the database's message is in its cause.
pub(super) fn cause(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => described(said),
        None => error.to_string(),
    }
}

/// The database error as text for logs: names of tables, columns and constraints, and never a value. Detail, hint and
/// context may contain rows and parameters and are left out.
fn described(said: &DbError) -> String {
    let code = said.code().code();
    let message = if is_of_names(code, said.routine()) {
        said.message()
    } else {
        "message omitted because it may contain user content"
    };
    let mut text = format!("{}: {message} ({code})", said.severity());
    let places = [("table", said.table()), ("column", said.column()), ("constraint", said.constraint())];
    for (what, name) in places {
        if let Some(name) = name {
            let _ = write!(text, ", {what} {name}");
        }
    }
    text
}

/// Whether PostgreSQL's message for this error contains only names. Data exceptions (class 22) quote the value, and
/// errors raised by functions may contain anything under any code.
fn is_of_names(code: &str, routine: Option<&str>) -> bool {
    const CLASSES: [&str; 16] =
        ["08", "0A", "23", "25", "26", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"];
    const RAISE: &str = "exec_stmt_raise";
    CLASSES.iter().any(|class| code.starts_with(class)) && routine != Some(RAISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_pgbouncer_are_told_apart_by_their_messages() {
        let check = |message, expected| assert_eq!(Outage::of_protocol(message), expected);
        let pooler = Some(Outage::TransactionPooler);
        check("unsupported startup parameter: options", pooler);
        check("bind message supplies 2 parameters, but prepared statement \"s1\" requires 1", pooler);
        check("no more connections allowed (max_client_conn)", Some(Outage::NoConnectionLeft));
        check("query_wait_timeout", None);
    }

    #[test]
    fn messages_that_may_hold_values_are_left_out() {
        let check = |code: &str, routine: &str, shown: bool| {
            assert_eq!(is_of_names(code, Some(routine)), shown, "{code} {routine}");
        };
        check("23502", "ExecConstraints", true);
        check("42501", "aclcheck_error", true);
        check("57P01", "ProcessInterrupts", true);
        check("22P02", "json_ereport_error", false);
        check("P0001", "exec_stmt_raise", false);
        check("23514", "exec_stmt_raise", false);
        check("XX000", "elog_finish", false);
    }
}
