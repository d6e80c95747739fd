//! Why a command on sessions and turns was refused.

use crate::{
    mcp,
    model::{
        BlobId, CallId, CompactionId, Exceeded, MessageId, RequestId, Seq, SessionId, TenantId,
        TurnId, append::Flaw, ledger::Occupant,
    },
    provider, store,
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
    /// The session has no such queued message.
    #[error("the session has no queued message {0}")]
    QueuedMessageNotFound(MessageId),
    /// As many messages wait as may.
    #[error("the session's queue is full: {limit} messages wait")]
    QueueFull {
        /// The session.
        session: SessionId,
        /// The most that may wait.
        limit: u32,
    },
    /// A provider was asked something beside a turn, and failed.
    #[error(transparent)]
    Provider(#[from] provider::Error),
    /// The tools of an MCP server cannot be had.
    #[error(transparent)]
    Mcp(#[from] mcp::Error),
    /// No configured provider has this model.
    #[error("{0}")]
    ModelNotFound(provider::registry::Missing),
    /// The model's window is not known, and the policy wants one that is.
    #[error("the context window of {0} is not known, and the session's policy requires one")]
    ContextWindowUnknown(String),
    /// The configuration names no such policy.
    #[error("the server's configuration has no policy {0}")]
    PolicyNotFound(String),
    /// The session's configuration is not the one that the caller has seen.
    #[error("the session has the etag {current}, not the one given")]
    EtagMismatch {
        /// The session.
        session: SessionId,
        /// The etag it has.
        current: String,
    },
    /// The key was used with another request.
    #[error("request_id {0} was used with a different request")]
    IdempotencyMismatch(RequestId),
    /// A cursor is ahead of the session.
    #[error("the cursor is ahead of the session, whose newest seq is {last}")]
    CursorAhead {
        /// The newest seq of the session.
        last: Seq,
    },
    /// Events that a stream has shown are lost.
    #[error(
        "the database lost events that this stream has shown; the session's newest seq is {last}"
    )]
    EventsLost {
        /// The newest seq of the session.
        last: Seq,
    },
    /// Calls that the host appended: their results are appended, too.
    #[error("the calls were appended: {results:?}, {approvals:?}")]
    AppendedCalls {
        /// Among the results.
        results: Vec<(usize, CallId)>,
        /// Among the approvals.
        approvals: Vec<(usize, CallId)>,
    },
    /// Messages that cannot follow what the session has.
    #[error("the messages do not fit: {0:?}")]
    Misfit(Vec<Flaw>),
    /// The transcript is not the one that was looked at.
    #[error("the transcript changed; its version is {version}")]
    ContextChanged {
        /// Its version now.
        version: i64,
    },
    /// The transcript ends in calls without results.
    #[error("the transcript ends in tool calls without results")]
    TranscriptOpen(Vec<CallId>),
    /// A seq to look back at is ahead of the session.
    #[error("at_seq is ahead of the session, whose newest seq is {last}")]
    AtSeqAhead {
        /// The newest seq of the session.
        last: Seq,
    },
    /// Calls that the session never had; the indices are positions in the request.
    #[error("the session has no such calls: {results:?}, {approvals:?}")]
    UnknownCalls {
        /// Among the results.
        results: Vec<(usize, CallId)>,
        /// Among the approvals.
        approvals: Vec<(usize, CallId)>,
    },
    /// The session has no such compaction in force.
    #[error("the session has no compaction {0} in force")]
    CompactionNotFound(CompactionId),
    /// Another compaction is being made.
    #[error("compaction {0} is running")]
    CompactionInProgress(CompactionId),
    /// A newer compaction stands upon it.
    #[error("compaction {newest} is newer: revert it first")]
    CompactionSuperseded {
        /// Which.
        newest: CompactionId,
    },
    /// A compaction would not make the context smaller.
    #[error(
        "a compaction would leave {after} of {before} tokens: the newest input, pinned messages, instructions and tools stay"
    )]
    CompactionNoGain {
        /// Tokens of the prompt.
        before: u32,
        /// Tokens that would be left.
        after: u32,
    },
    /// No prune of the session has that seq.
    #[error("no prune has the seq {0}")]
    PruneNotFound(Seq),
    /// The prompt cannot be made to fit.
    #[error("the prompt has about {used} tokens, and the model's window {window}")]
    ContextOverflow {
        /// Tokens of the prompt.
        used: u32,
        /// Tokens of the window.
        window: u32,
        /// What has most of them.
        largest: Occupant,
    },
    /// The session has no such message of the model's.
    #[error("the session has no assistant message {0}")]
    MessageNotFound(MessageId),
    /// There is nothing that the model is to answer.
    #[error("there is nothing to run: no input, no queued message, and no transcript to continue")]
    NoInput,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The caller's deadline passed before the turn was admitted.
    #[error("the deadline passed before the turn was admitted; nothing was begun")]
    DeadlinePassed,
    /// The server runs as many turns as it may.
    #[error("the server is at its limit of running turns")]
    Overloaded,
    /// Another call copies the session into the fork.
    #[error(
        "the session {0} is still being copied by the call that began the fork; repeat the request"
    )]
    ForkInProgress(SessionId),
    /// The tenant is being deleted, with everything that it has.
    #[error("the tenant {0} is being deleted")]
    TenantBeingDeleted(TenantId),
    /// The tenant is at one of its limits.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// The server takes as many uploads as it may.
    #[error("the server is at its limit of uploads")]
    TooManyUploads,
    /// Content over the limit.
    #[error("the content is larger than {limit} bytes")]
    ContentTooLarge {
        /// The most bytes that are taken.
        limit: u64,
    },
    /// The messages of a session are as large as they may be.
    #[error(
        "the messages of the session that a model sees would be larger than {limit} bytes: compact or prune them first"
    )]
    SessionTooLarge {
        /// The most bytes of them.
        limit: u64,
    },
    /// Content is not what its header said: what it is instead, where that was said.
    #[error("the content does not match its header")]
    ContentMismatch {
        /// Its length in bytes. `None` means as said.
        bytes: Option<u64>,
        /// Its SHA-256. `None` means as said.
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
