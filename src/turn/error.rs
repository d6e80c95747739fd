//! Why a command on sessions and turns was refused.

use crate::{
    model::{BlobId, CallId, RequestId, Seq, SessionId, TurnId},
    store,
};

/// Why a command was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No session of this tenant has the id.
    #[error("no session has the id {0}")]
    SessionNotFound(SessionId),
    /// A session with the chosen id exists.
    #[error("a session with the id {0} exists")]
    SessionExists(SessionId),
    /// The session has no such turn.
    #[error("the session has no turn {0}")]
    TurnNotFound(TurnId),
    /// No blob of this tenant has the id.
    #[error("no blob has the id {0}")]
    BlobNotFound(BlobId),
    /// A turn is running.
    #[error("turn {turn} is running")]
    TurnInProgress {
        /// Which.
        turn: TurnId,
        /// The newest seq of the session.
        last: Seq,
    },
    /// A turn is running, and queueing is not built yet.
    #[error("a turn is running, and queueing its input is not implemented yet")]
    QueueNotImplemented,
    /// No configured provider has this model.
    #[error("no configured provider has the model {0}")]
    ModelNotFound(String),
    /// The configuration names no such policy.
    #[error("the configuration names no policy {0}")]
    PolicyNotFound(String),
    /// The key was used with another request.
    #[error("request_id {0} was used with a different request")]
    IdempotencyMismatch(RequestId),
    /// A cursor is ahead of the session.
    #[error("the cursor is ahead of the session, whose newest seq is {last}")]
    CursorAhead {
        /// The newest seq of the session.
        last: Seq,
    },
    /// Calls that the session never had; the indices are positions in the request.
    #[error("the session has no such calls: {0:?}")]
    UnknownCalls(Vec<(usize, CallId)>),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The server runs as many turns as it may.
    #[error("the server runs as many turns as it may")]
    Overloaded,
    /// The server takes as many uploads as it may.
    #[error("the server takes as many uploads as it may")]
    TooManyUploads,
    /// Content over the limit.
    #[error("the content is larger than {limit} bytes")]
    ContentTooLarge {
        /// The most bytes that are taken.
        limit: u64,
    },
    /// Content is not what its header said: what it is instead, where that was said.
    #[error("the content is not what its header says")]
    ContentMismatch {
        /// Its length in bytes; none: as said.
        bytes: Option<u64>,
        /// Its SHA-256; none: as said.
        sha256: Option<BlobId>,
    },
    /// The caller left before the content was complete.
    #[error("the upload was abandoned")]
    UploadAbandoned,
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A defect.
    #[error("internal: {0}")]
    Internal(String),
}
