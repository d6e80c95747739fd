//! Errors of commands on sessions and turns.

use crate::{
    mcp,
    model::{
        BlobId, CallId, CompactionId, Exceeded, MessageId, RequestId, Seq, SessionId, TenantId, TurnId, append::Flaw,
        ledger::ContextCategory,
    },
    provider, store,
};

/// Why a command was refused. A refused command has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no session has the id {0}")]
    SessionNotFound(SessionId),
    /// A session with the client-chosen id already exists.
    #[error("a session with the id {0} already exists")]
    SessionExists(SessionId),
    #[error("the session has no turn {0}")]
    TurnNotFound(TurnId),
    /// No blob of this tenant has the id.
    #[error("no blob has the id {0}")]
    BlobNotFound(BlobId),
    /// The command needs an idle session, and a turn is live in it.
    #[error("turn {turn} is running")]
    TurnInProgress {
        turn: TurnId,
        /// The newest seq of the session.
        last: Seq,
    },
    #[error("the session has no queued message {0}")]
    QueuedMessageNotFound(MessageId),
    /// The session's queue is at its limit.
    #[error("the session's queue is at its limit of {limit} messages")]
    QueueFull {
        session: SessionId,
        /// Most messages that may be pending.
        limit: u32,
    },
    /// A provider request outside of a turn failed.
    #[error(transparent)]
    Provider(#[from] provider::Error),
    /// The tools of an MCP server could not be listed or resolved.
    #[error(transparent)]
    Mcp(#[from] mcp::Error),
    #[error("{0}")]
    ModelNotFound(provider::registry::UnresolvedModel),
    /// The model's context window is unknown, and the policy requires a known one.
    #[error("the context window of {0} is unknown, and the session's policy requires a known one")]
    ContextWindowUnknown(String),
    #[error("the server's configuration has no policy {0}")]
    PolicyNotFound(String),
    /// The etag of the request is not the current one.
    #[error("the etag does not match: the session's current etag is {current}")]
    EtagMismatch {
        session: SessionId,
        /// The current etag.
        current: String,
    },
    /// The idempotency key was used with a different request.
    #[error("request_id {0} was used with a different request")]
    IdempotencyMismatch(RequestId),
    /// The cursor is ahead of the session.
    #[error("after_seq is greater than the session's newest seq, {last}")]
    CursorAhead {
        /// The newest seq of the session.
        last: Seq,
    },
    /// Events that a stream has delivered are no longer in the database, for example after a
    /// failover.
    #[error("the database lost events that this stream has delivered; the session's newest seq is {last}")]
    EventsLost {
        /// The newest seq of the session.
        last: Seq,
    },
    /// The request answers tool calls that the host appended. Their results must be appended too.
    /// The indices are positions in the request.
    #[error(
        "these calls were appended by the host; append their results too: results {results:?}, approvals {approvals:?}"
    )]
    AppendedCalls { results: Vec<(usize, CallId)>, approvals: Vec<(usize, CallId)> },
    /// The messages cannot follow the session's transcript.
    #[error("the messages cannot follow the transcript: {0:?}")]
    Misfit(Vec<Flaw>),
    /// The transcript's version is not the one that the caller expects.
    #[error("the transcript changed; its current version is {version}")]
    ContextChanged {
        /// The current version.
        version: i64,
    },
    /// The transcript ends in tool calls without results.
    #[error("the transcript ends in tool calls without results; append or submit the results first")]
    TranscriptOpen(Vec<CallId>),
    /// `at_seq` is ahead of the session.
    #[error("at_seq is greater than the session's newest seq, {last}")]
    AtSeqAhead {
        /// The newest seq of the session.
        last: Seq,
    },
    /// The session has no such tool calls. The indices are positions in the request.
    #[error("the session has no such calls: results {results:?}, approvals {approvals:?}")]
    UnknownCalls { results: Vec<(usize, CallId)>, approvals: Vec<(usize, CallId)> },
    #[error("the session has no compaction {0} in force")]
    CompactionNotFound(CompactionId),
    /// Another compaction of the session is running.
    #[error("compaction {0} is running")]
    CompactionInProgress(CompactionId),
    /// A newer compaction builds on this one.
    #[error("compaction {newest} is newer: revert it first")]
    CompactionSuperseded {
        /// The compaction to revert first.
        newest: CompactionId,
    },
    /// A compaction would not make the context smaller.
    #[error(
        "a compaction would leave {after} of {before} tokens: the newest input, pinned messages, instructions and tools stay"
    )]
    CompactionNoGain {
        /// Size of the current prompt.
        before: u32,
        /// Size of the prompt after the compaction.
        after: u32,
    },
    #[error("no prune has the seq {0}")]
    PruneNotFound(Seq),
    /// The prompt cannot be made to fit the model's window.
    #[error("the prompt has about {used} tokens and exceeds the model's context window of {window} tokens")]
    ContextOverflow {
        used: u32,
        window: u32,
        /// The largest part of the prompt.
        largest: ContextCategory,
    },
    /// The session has no assistant message with the id.
    #[error("the session has no assistant message {0}")]
    MessageNotFound(MessageId),
    /// The model has nothing to respond to.
    #[error("there is nothing to run: no input, no queued message, and no transcript to continue")]
    NoInput,
    #[error("the server is shutting down")]
    Draining,
    /// The caller's deadline passed before the turn was admitted.
    #[error("the deadline passed before the turn was admitted; the turn was not started")]
    DeadlinePassed,
    /// The replica is at its limit of running turns.
    #[error("the server is at its limit of running turns")]
    Overloaded,
    /// Another request is still copying the session into the fork.
    #[error("the session {0} is still being copied by the call that began the fork; repeat the request")]
    ForkInProgress(SessionId),
    /// The tenant and all its data are being deleted.
    #[error("the tenant {0} is being deleted")]
    TenantBeingDeleted(TenantId),
    /// A limit of the tenant is exceeded.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// The replica is at its limit of concurrent uploads.
    #[error("the server is at its limit of concurrent uploads")]
    TooManyUploads,
    #[error("the content is larger than {limit} bytes")]
    ContentTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The messages of the session that a model sees are at the limit.
    #[error("the session's messages in the context would exceed {limit} bytes: compact or prune the session first")]
    SessionTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The content does not match its header. Each field holds the actual value where it differs
    /// from the declared one.
    #[error("the content does not match its header")]
    ContentMismatch {
        /// The actual length in bytes. `None` if it matches or was not declared.
        bytes: Option<u64>,
        /// The actual SHA-256. `None` if it matches or was not declared.
        sha256: Option<BlobId>,
    },
    /// The client disconnected before the content was complete.
    #[error("the upload was abandoned")]
    UploadAbandoned,
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A bug in the server.
    #[error("internal: {0}")]
    Internal(String),
}
