//! Whether the server takes requests, and why not.

/// Why no request is taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The database cannot be reached.
    Database,
    /// The schema is not what this program needs: in which way.
    Schema(String),
}

/// How the server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It takes requests.
    Ready,
    /// It takes requests, but others should be asked: why.
    Unready(String),
    /// It takes none.
    Closed(Closed),
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database => f.write_str("the database cannot be reached"),
            Self::Schema(problem) => f.write_str(problem),
        }
    }
}
