//! What can go wrong with the memory; each kind asks for another reaction.

use std::fmt::Write as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::model::Seq;

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, or its answer was lost: the outcome is unknown, repeat.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
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
    /// Anything else: a defect of contextd or of the database.
    #[error("the database refused a statement: {}", cause(.0))]
    // It is no source: chains of causes are printed, and its own words may hold content.
    Broken(tokio_postgres::Error),
}

impl Error {
    /// Whether the same operation may succeed when it is repeated.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Refused(_) | Self::Busy | Self::Conflict(_) => true,
            Self::Duplicate(_)
            | Self::Schema(_)
            | Self::EventsExpired { .. }
            | Self::Corrupt(_)
            | Self::NoReach
            | Self::Broken(_) => false,
        }
    }
}

impl Error {
    /// Its kind, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::Busy => "busy",
            Self::Conflict(_) => "conflict",
            Self::Duplicate(_) => "duplicate",
            Self::Schema(_) => "schema",
            Self::EventsExpired { .. } => "events_expired",
            Self::Corrupt(_) => "corrupt",
            Self::NoReach => "no_reach",
            Self::Broken(_) => "broken",
        }
    }

    /// Whether a write found another fence, or another session than it is for: its statement sets
    /// `op` to null then, which the column refuses.
    pub(super) fn is_other_fence(&self) -> bool {
        let Self::Broken(error) = self else {
            return false;
        };
        error.as_db_error().is_some_and(|error| {
            *error.code() == SqlState::NOT_NULL_VIOLATION
                && (error.table(), error.column()) == (Some("session_run"), Some("op"))
        })
    }

    /// Whether a write found another session than it is for, or a request that is known.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Duplicate(_)) || self.is_other_fence()
    }

    /// Whether a connection on which this happened is in an unknown state: all but the database's
    /// own word on a statement.
    pub(super) fn spoils_connection(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Refused(_) => true,
            Self::Broken(error) => error.as_db_error().is_none(),
            Self::Busy
            | Self::Conflict(_)
            | Self::Duplicate(_)
            | Self::Schema(_)
            | Self::EventsExpired { .. }
            | Self::Corrupt(_)
            | Self::NoReach => false,
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
