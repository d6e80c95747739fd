//! The readiness of the server, with the reason if it is not ready.

/// Why the server accepts no requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedReason {
    /// The database is unreachable.
    Database,
    /// The schema version does not match this program. The text has the details.
    Schema(String),
}

/// The readiness of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The server accepts requests, but clients should prefer another replica. The text gives the reason.
    Unready(String),
    /// The server accepts no requests.
    Closed(ClosedReason),
}

impl std::fmt::Display for ClosedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database => f.write_str("the database cannot be reached"),
            Self::Schema(problem) => f.write_str(problem),
        }
    }
}
