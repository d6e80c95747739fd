//! What can go wrong with the memory; each kind asks for another reaction.

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, or its answer was lost: the outcome is unknown, repeat.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// No connection became free in time.
    #[error("no database connection became free in time")]
    Busy,
    /// A deadlock or serialisation conflict outlasted its repetitions.
    #[error("the database refused a transaction again and again: {0}")]
    Conflict(String),
    /// The schema is not the one this program was built for.
    #[error("{0}")]
    Schema(String),
    /// A stored row cannot be read.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// Anything else: a defect of contextd or of the database.
    #[error("the database refused a statement: {0}")]
    Broken(#[source] tokio_postgres::Error),
}
