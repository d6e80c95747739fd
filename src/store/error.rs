//! What can go wrong with the memory; each kind asks for another reaction.

use std::fmt::Write as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::model::{Seq, TenantId};

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, or its answer was lost: the outcome is unknown, repeat.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The database answers, but something that only an operator can change is in the way.
    #[error("{0}: {1}")]
    Outage(Outage, String),
    /// The database refuses connections for a reason that only an operator can change: a wrong
    /// password, no such database.
    #[error("the database refuses connections: {0}")]
    Refused(String),
    /// No connection became free in time.
    #[error("no database connection became free in time")]
    Busy,
    /// A deadlock or serialisation conflict outlasted its repetitions.
    #[error("the database keeps aborting a transaction: {0}")]
    Conflict(String),
    /// A unique key exists already; the name of the constraint.
    #[error("a row with this key exists already: {0}")]
    Duplicate(String),
    /// The schema is not the one this program was built for.
    #[error("{0}")]
    Schema(String),
    /// Events after the cursor were removed by retention.
    #[error("events after the cursor were removed; the oldest that is kept has the seq {oldest}")]
    EventsExpired {
        /// The oldest event that is kept, or the one that comes next.
        oldest: Seq,
    },
    /// A stored row cannot be read.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// A statement of a task that does not say whose rows it may reach, with row security: a defect of
    /// contextd.
    #[error("a task does not say whose rows it may reach")]
    NoReach,
    /// The tenant is being deleted, or was deleted since the call was admitted.
    #[error("the tenant {0} is being deleted")]
    TenantDeleted(TenantId),
    /// Anything else: a defect of contextd or of the database.
    #[error("the database refused a statement: {}", cause(.0))]
    // It is no source: chains of causes are printed, and its own words may hold content.
    Broken(tokio_postgres::Error),
}

/// What is wrong with a database that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Outage {
    /// It has no room for another connection of this role, or at all.
    #[error("the database has no connection left")]
    NoConnectionLeft,
    /// Its disk is full.
    #[error("the database's disk is full")]
    DiskFull,
    /// The server cannot load its own files, as after an upgrade of its package while it ran.
    #[error("the database server cannot load its own files; restart it")]
    ServerBroken,
    /// Statements of other connections were found: a pooler gives each transaction another one.
    #[error(
        "a pooler gives each transaction another connection; set database.transaction_pooler = true"
    )]
    TransactionPooler,
}

impl Outage {
    /// Its name, as metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoConnectionLeft => "no_connection_left",
            Self::DiskFull => "disk_full",
            Self::ServerBroken => "server_broken",
            Self::TransactionPooler => "transaction_pooler",
        }
    }

    /// The outage that an error of the database is.
    fn of(error: &DbError) -> Option<Self> {
        let code = error.code();
        if *code == SqlState::TOO_MANY_CONNECTIONS {
            Some(Self::NoConnectionLeft)
        } else if *code == SqlState::DISK_FULL {
            Some(Self::DiskFull)
        } else if *code == SqlState::UNDEFINED_FILE || is_of_loader(error.routine()) {
            Some(Self::ServerBroken)
        } else if [
            SqlState::DUPLICATE_PSTATEMENT,
            SqlState::INVALID_SQL_STATEMENT_NAME,
        ]
        .contains(code)
        {
            Some(Self::TransactionPooler)
        } else if *code == SqlState::PROTOCOL_VIOLATION {
            Self::of_protocol(error.message())
        } else {
            None
        }
    }

    /// The outage that a violation of the protocol is, by its message: the code is also that of most
    /// errors of pgbouncer.
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

/// Whether PostgreSQL's loader of libraries wrote such an error.
fn is_of_loader(routine: Option<&str>) -> bool {
    routine.is_some_and(|routine| {
        [
            "internal_load_library",
            "incompatible_module_error",
            "load_external_function",
        ]
        .contains(&routine)
    })
}

impl Error {
    /// Whether the same operation may succeed when it is repeated.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Outage(..)
            | Self::Refused(_)
            | Self::Busy
            | Self::Conflict(_) => true,
            Self::Duplicate(_)
            | Self::Schema(_)
            | Self::EventsExpired { .. }
            | Self::Corrupt(_)
            | Self::NoReach
            | Self::TenantDeleted(_)
            | Self::Broken(_) => false,
        }
    }
}

impl Error {
    /// What an operator has to change, where that is known.
    pub fn outage(&self) -> Option<Outage> {
        match self {
            Self::Outage(outage, _) => Some(*outage),
            Self::Unavailable(_)
            | Self::Refused(_)
            | Self::Busy
            | Self::Conflict(_)
            | Self::Duplicate(_)
            | Self::Schema(_)
            | Self::EventsExpired { .. }
            | Self::Corrupt(_)
            | Self::NoReach
            | Self::TenantDeleted(_)
            | Self::Broken(_) => None,
        }
    }

    /// Its kind, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Outage(outage, _) => outage.name(),
            Self::Refused(_) => "refused",
            Self::Busy => "busy",
            Self::Conflict(_) => "conflict",
            Self::Duplicate(_) => "duplicate",
            Self::Schema(_) => "schema",
            Self::EventsExpired { .. } => "events_expired",
            Self::Corrupt(_) => "corrupt",
            Self::NoReach => "no_reach",
            Self::TenantDeleted(_) => "tenant_deleted",
            Self::Broken(_) => "broken",
        }
    }

    /// Whether a connection on which this happened is in an unknown state: all but the database's
    /// own word on a statement.
    pub(super) fn spoils_connection(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Outage(..) | Self::Refused(_) => true,
            Self::Broken(error) => error.as_db_error().is_none(),
            Self::Busy
            | Self::Conflict(_)
            | Self::Duplicate(_)
            | Self::Schema(_)
            | Self::EventsExpired { .. }
            | Self::Corrupt(_)
            | Self::NoReach
            | Self::TenantDeleted(_) => false,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else {
            return if error.is_closed()
                || std::error::Error::source(&error)
                    .is_some_and(|source| source.is::<std::io::Error>())
            {
                Self::Unavailable(error.to_string())
            } else {
                Self::Broken(error)
            };
        };
        let code = database.code();
        let toolset_removed =
            *code == SqlState::FOREIGN_KEY_VIOLATION && database.constraint() == Some(TOOLSET);
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

/// The constraint that refuses a configuration whose tool set is just being removed: stored anew,
/// it is there.
const TOOLSET: &str = "session_revisions_toolset";

/// Others were in the way: a deadlock, a serialisation conflict, a lock that was held for too long.
fn is_conflict(code: &SqlState) -> bool {
    [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(code)
}

/// Classes 08 (connection), 53 (resources) and 57 (operator intervention: shutdown, cancel), the
/// system's own errors on its disk, writes refused by a standby, and a transaction that a lost
/// answer left open.
fn is_outage(code: &SqlState) -> bool {
    ["08", "53", "57", "58"]
        .iter()
        .any(|class| code.code().starts_with(class))
        || [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IN_FAILED_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// A connection that the database refused: for good, until an operator changes something, or for
/// now.
pub(super) fn refused(error: &tokio_postgres::Error) -> Error {
    if let Some(problem) = refused_tls(error) {
        return Error::Refused(problem);
    }
    if let Some((outage, database)) = error
        .as_db_error()
        .and_then(|database| Some((Outage::of(database)?, database)))
    {
        return Error::Outage(outage, described(database));
    }
    let for_good = error.as_db_error().is_some_and(|error| {
        let code = error.code();
        code.code().starts_with("28") // invalid authorization
            || [SqlState::INVALID_CATALOG_NAME, SqlState::PROTOCOL_VIOLATION].contains(code)
    });
    if for_good {
        Error::Refused(cause(error))
    } else {
        Error::Unavailable(cause(error))
    }
}

/// Why a connection cannot be encrypted, where that is not the network's doing: the server does not
/// speak TLS, or its certificate is refused.
fn refused_tls(error: &tokio_postgres::Error) -> Option<String> {
    const HANDSHAKE: &str = "error performing TLS handshake";
    let source = std::error::Error::source(error)?;
    let lost = source
        .downcast_ref::<std::io::Error>()
        .is_some_and(|source| source.kind() != std::io::ErrorKind::InvalidData);
    (error.to_string() == HANDSHAKE && !lost).then(|| {
        format!(
            "no TLS: {source}; database.sslmode, and sslmode in the URL, say whether it is needed, \
             database.ca_file whose certificates are trusted"
        )
    })
}

/// The driver's own text says only «db error»; what the database said stands in its cause.
pub(super) fn cause(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => described(said),
        None => error.to_string(),
    }
}

/// What the database said, fit for the log: names of tables, columns and constraints, and never a
/// value. The detail, the hint and the context hold rows and parameters, and so are left out.
fn described(said: &DbError) -> String {
    let code = said.code().code();
    let message = if is_of_names(code, said.routine()) {
        said.message()
    } else {
        "its message is left out, as it may hold content"
    };
    let mut text = format!("{}: {message} ({code})", said.severity());
    let places = [
        ("table", said.table()),
        ("column", said.column()),
        ("constraint", said.constraint()),
    ];
    for (what, name) in places {
        if let Some(name) = name {
            let _ = write!(text, ", {what} {name}");
        }
    }
    text
}

/// Whether PostgreSQL writes the message of such an error, of names alone. Data exceptions (class 22)
/// quote the value, and what functions raise holds anything, under any code.
fn is_of_names(code: &str, routine: Option<&str>) -> bool {
    const CLASSES: [&str; 16] = [
        "08", "0A", "23", "25", "26", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57",
        "58",
    ];
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
        check(
            "bind message supplies 2 parameters, but prepared statement \"s1\" requires 1",
            pooler,
        );
        check(
            "no more connections allowed (max_client_conn)",
            Some(Outage::NoConnectionLeft),
        );
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
