//! Commands: validated requests in domain types instead of wire types.

use std::time::Duration;

use super::{
    BlobId, CallId, CompactionId, Delivery, Generation, InputMessage, LimitsOverride, MessageId, NewContent,
    OutputPart, PromptFormat, RequestId, Seq, SessionConfig, SessionId, ToolOutcome, ToolSet, TurnId, Usage,
    UsagePurpose,
    compaction::{CompactionOverrides, InstructionsMode},
    config::PruneOverrides,
};

/// An idempotency key and the hash of the request that carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key. `None` means the request is not remembered.
    pub request: Option<RequestId>,
    /// SHA-256, in hex, of the RPC's name and the decoded request, without the fields that may differ in a repeated
    /// request.
    pub hash: String,
}

impl Idempotency {
    /// For commands that the server itself issues: nothing is remembered.
    pub fn none() -> Self {
        Self { request: None, hash: String::new() }
    }
}

/// Create a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    /// The id chosen by the client. `None` means the server chooses one.
    pub session: Option<SessionId>,
    /// Fields that are not set get the server's defaults.
    pub draft: SessionDraft,
    pub idempotency: Idempotency,
}

/// A session's configuration as sent by a client. Empty or unset fields get the server's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionDraft {
    /// The model and the policy may be empty.
    pub config: SessionConfig,
}

/// Enqueue a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueMessage {
    pub session: SessionId,
    pub idempotency: Idempotency,
    pub message: InputMessage,
    /// Content uploaded with the message.
    pub contents: Vec<NewContent>,
    /// When the message is taken.
    pub delivery: Delivery,
    /// Start a turn if none is running.
    pub starts_turn: bool,
    /// The message is dropped after this time. `None` means never.
    pub ttl: Option<Duration>,
}

/// Cancel one queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelQueuedMessage {
    pub session: SessionId,
    pub message: MessageId,
    pub idempotency: Idempotency,
}

/// Cancel all queued messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearQueue {
    pub session: SessionId,
    pub idempotency: Idempotency,
}

/// Append messages without running a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendMessages {
    pub session: SessionId,
    pub idempotency: Idempotency,
    /// In order; never empty.
    pub messages: Vec<InputMessage>,
    /// The messages were in another API's format, in which ids of calls may repeat: such calls get new ids, as in a
    /// turn. Otherwise repeated ids are rejected.
    pub renames_calls: bool,
    /// Content uploaded with the messages.
    pub contents: Vec<NewContent>,
    /// The version that the transcript must have. `None` means any.
    pub version: Option<i64>,
}

/// Count tokens. Nothing is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CountTokens {
    /// Count this session's next prompt with the messages added. `None` means only the given messages.
    pub session: Option<SessionId>,
    /// The model to count for. `None` means the session's model, or the server's default.
    pub model: Option<String>,
    /// In order.
    pub messages: Vec<InputMessage>,
    /// Content uploaded with the messages.
    pub contents: Vec<NewContent>,
    /// System prompt if there is no session.
    pub system: String,
    /// `None` means the session's tools.
    pub tools: Option<ToolSet>,
    /// Use the provider's own token counter if it has one.
    pub exact: bool,
}

/// Create a session from the transcript of another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkSession {
    /// The session to copy.
    pub session: SessionId,
    /// Copy up to this seq. `None` means the whole transcript.
    pub at: Option<Seq>,
    /// The id of the new session. `None` means the server chooses one.
    pub new: Option<SessionId>,
    pub idempotency: Idempotency,
}

/// Change a session's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateSession {
    pub session: SessionId,
    /// The etag that the configuration must still have. `None` means any.
    pub etag: Option<String>,
    pub change: ConfigChange,
    pub idempotency: Idempotency,
}

/// A partial update of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The fields to change, by their paths in the API.
    pub paths: Vec<String>,
    /// New values of these fields; an empty or unset value resets the field to its default. All other fields are
    /// ignored.
    pub values: SessionConfig,
}

/// Prune old tool results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneToolOutputs {
    pub session: SessionId,
    /// Overrides of the session's prune policy.
    pub overrides: PruneOverrides,
    /// Only report what would be pruned.
    pub dry_run: bool,
    pub idempotency: Idempotency,
}

/// Prepare the next prompt for a host that calls the model itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareContext {
    pub session: SessionId,
    pub idempotency: Idempotency,
    /// The model to prepare for. `None` means the session's model.
    pub model: Option<String>,
    pub format: PromptFormat,
    /// Apply queued messages to the transcript first.
    pub applies_queued: bool,
}

/// Render a session's next prompt. Nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderContext {
    pub session: SessionId,
    /// The model to render for. `None` means the session's model.
    pub model: Option<String>,
    pub format: PromptFormat,
    /// Render the prompt as of this seq. `None` means the current one.
    pub at: Option<Seq>,
}

/// Record the usage of a model call that the host made itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordUsage {
    pub session: SessionId,
    pub idempotency: Idempotency,
    /// The model that was called. `None` means the session's model.
    pub model: Option<String>,
    pub usage: Usage,
    pub purpose: UsagePurpose,
    /// The message that the call produced.
    pub message: Option<MessageId>,
    /// The version of the transcript that the prompt was built from.
    pub version: Option<i64>,
}

/// Restore the tool results of a prune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreToolOutputs {
    pub session: SessionId,
    /// The seq of the prune.
    pub pruned_at: Seq,
    pub idempotency: Idempotency,
}

/// Delete a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteSession {
    pub session: SessionId,
    /// The etag that the configuration must still have. `None` means any.
    pub etag: Option<String>,
    pub idempotency: Idempotency,
}

/// Run a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteTurn {
    /// `None` means a new session.
    pub session: Option<SessionId>,
    pub idempotency: Idempotency,
    /// If the request is repeated, the stream resumes after this seq.
    pub after: Seq,
    pub start: Start,
    /// Content uploaded with the input.
    pub contents: Vec<NewContent>,
    pub request: TurnRequest,
    /// What to do if a turn is already running.
    pub busy: BusyPolicy,
    /// The session to create if it does not exist.
    pub create: Option<SessionDraft>,
}

/// What a turn starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// A user message.
    Input(Box<InputMessage>),
    /// The queued messages.
    Queue,
    /// The existing transcript, without a new message.
    Transcript,
}

/// Settings of one turn that override its session's. Stored with the turn, so that any replica can resume it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnRequest {
    /// Replaces the session's tools.
    pub tools: Option<ToolSet>,
    /// Overrides the session's limits, field by field.
    pub limits: LimitsOverride,
    /// Model reference that replaces the session's.
    pub model: Option<String>,
    /// Overrides the session's generation settings, field by field.
    pub generation: Generation,
    /// Cancel the turn if no client has read its events for this long.
    pub cancel_after: Option<Duration>,
}

impl TurnRequest {
    /// The fields that are set, by their paths in the API.
    pub fn paths(&self) -> Vec<&'static str> {
        let Self { tools, limits, model, generation, cancel_after } = self;
        let LimitsOverride { max_steps, max_output_tokens, max_total_tokens, turn_timeout, tool_timeout, grace } =
            limits;
        let own = [
            ("tools", tools.is_some()),
            ("limits.max_steps", max_steps.is_some()),
            ("limits.max_output_tokens", max_output_tokens.is_some()),
            ("limits.max_total_tokens", max_total_tokens.is_some()),
            ("limits.turn_timeout", turn_timeout.is_some()),
            ("limits.tool_timeout", tool_timeout.is_some()),
            ("limits.grace_period", grace.is_some()),
            ("model", model.is_some()),
            ("cancel_after_disconnect", cancel_after.is_some()),
        ];
        let own = own.into_iter().filter(|(_, set)| *set).map(|(path, _)| path);
        own.chain(generation.paths()).collect()
    }
}

/// Compact a session's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    pub session: SessionId,
    /// Overrides of the session's compaction policy.
    pub overrides: CompactionOverrides,
    /// Instructions for this summary, and how they are combined with the built-in ones.
    pub instructions: (String, InstructionsMode),
    /// Target size in tokens. `None` means the strategy decides.
    pub target: Option<u32>,
    /// Respond only when the compaction is done.
    pub wait: bool,
    /// Only report what would be compacted.
    pub dry_run: bool,
    pub idempotency: Idempotency,
}

/// Revert a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertCompaction {
    pub session: SessionId,
    pub compaction: CompactionId,
    pub idempotency: Idempotency,
}

/// What ExecuteTurn does if a turn is already running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BusyPolicy {
    /// Queue the input.
    Enqueue,
    /// Reject the request.
    Reject,
    /// Cancel the running turn, and start a new one with the input.
    Interrupt,
}

/// Stream a session's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub session: SessionId,
    /// Only this turn's events; the stream ends with the turn.
    pub turn: Option<TurnId>,
    /// The seq of the last event that the client has processed.
    pub after: Seq,
    /// Continue with live events.
    pub follow: bool,
}

/// Submit tool results and approval decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitToolResults {
    pub session: SessionId,
    pub idempotency: Idempotency,
    /// In order; a call occurs at most once in `results` and `decisions` together.
    pub results: Vec<SubmittedResult>,
    /// In order.
    pub decisions: Vec<Decision>,
    /// Content uploaded with the results.
    pub contents: Vec<NewContent>,
}

/// A user's decision about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub call: CallId,
    pub verdict: Verdict,
}

/// What the user decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Run the call.
    Approve {
        /// Arguments that replace the model's, a JSON object.
        edited: Option<String>,
    },
    /// Do not run the call.
    Deny {
        /// Characters of the reason that cannot be stored were replaced.
        sanitized: bool,
        /// The reason, as the model gets it; may be empty.
        reason: String,
    },
}

/// The result of one call as the host sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedResult {
    pub call: CallId,
    /// Texts, sanitized but not truncated, and media.
    pub parts: Vec<OutputPart>,
    /// [`ToolOutcome::Success`] or [`ToolOutcome::Error`].
    pub outcome: ToolOutcome,
    /// Characters that cannot be stored were replaced.
    pub sanitized: bool,
    /// Output for users, sanitized; may be empty.
    pub display_text: String,
}

/// The outcome of one submitted result or decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerStatus {
    Accepted,
    /// The call already has this result.
    Duplicate,
    /// Too late; nothing changed.
    Stale,
    /// Too early; nothing changed.
    NotRequested,
}

/// Store content, which follows in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBlob {
    pub media_type: String,
    /// The length in bytes declared by the client.
    pub bytes: Option<u64>,
    /// The id (SHA-256) declared by the client.
    pub id: Option<BlobId>,
    /// The request hash does not cover the content, which is not known yet.
    pub idempotency: Idempotency,
}

/// Cancel a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelTurn {
    pub session: SessionId,
    /// `None` means the live turn.
    pub turn: Option<TurnId>,
    pub idempotency: Idempotency,
    /// Roll back the turn's messages.
    pub rollback: bool,
    /// For the log and the event.
    pub reason: String,
}
