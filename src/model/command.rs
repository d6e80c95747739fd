//! Commands: what a valid request asks for, in words instead of wire types.

use std::time::Duration;

use super::{
    BlobId, CallId, CompactionId, Delivery, Generation, Given, InputMessage, LimitsOverride,
    MessageId, NewContent, PromptShape, RequestId, Seq, SessionConfig, SessionId, ToolOutcome,
    ToolSet, TurnId, Usage, UsagePurpose,
    compaction::{CompactionOverrides, InstructionsMode},
    config::PruneOverrides,
};

/// An idempotency key with the hash of the request it came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key. `None` means the request is not to be remembered.
    pub request: Option<RequestId>,
    /// SHA-256 in hex of the RPC's name and the decoded request without what may differ on
    /// repetition.
    pub hash: String,
}

impl Idempotency {
    /// Of what the service does by itself: nothing is remembered.
    pub fn none() -> Self {
        Self {
            request: None,
            hash: String::new(),
        }
    }
}

/// Create a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    /// The id the client chose.
    pub session: Option<SessionId>,
    /// Its configuration; what is not set is filled in by the server's defaults.
    pub draft: SessionDraft,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// A session's configuration as a client gives it: what is empty or none is left to the server's
/// defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionDraft {
    /// Everything but the model and policy, which may be empty.
    pub config: SessionConfig,
}

/// Queue a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueMessage {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// What the user says.
    pub message: InputMessage,
    /// Content that came with it.
    pub contents: Vec<NewContent>,
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// When it is given up. `None` means never.
    pub ttl: Option<Duration>,
}

/// Withdraw a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelQueuedMessage {
    /// The session.
    pub session: SessionId,
    /// The message.
    pub message: MessageId,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Withdraw all messages that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearQueue {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Append messages without running a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendMessages {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// The messages in order; never empty.
    pub messages: Vec<InputMessage>,
    /// They came in another API's shape, where ids of calls may come again: such calls get new ids, as
    /// in a turn. Otherwise they are refused.
    pub renames_calls: bool,
    /// Content that came with them.
    pub contents: Vec<NewContent>,
    /// The version that the transcript must have. `None` means any.
    pub version: Option<i64>,
}

/// Count tokens. Nothing is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CountTokens {
    /// Count this session's next prompt with the messages added. `None` means only what is given.
    pub session: Option<SessionId>,
    /// The model to count for. `None` means the session's, or the server's default.
    pub model: Option<String>,
    /// The messages in order.
    pub messages: Vec<InputMessage>,
    /// Content that came with them.
    pub contents: Vec<NewContent>,
    /// System prompt where there is no session.
    pub system: String,
    /// The tools. `None` means those of the session.
    pub tools: Option<ToolSet>,
    /// Ask the provider's own counter where there is one.
    pub exact: bool,
}

/// Make a session from the transcript of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkSession {
    /// The session to copy.
    pub session: SessionId,
    /// Up to which seq. `None` means all of it.
    pub at: Option<Seq>,
    /// The id of the new session.
    pub new: Option<SessionId>,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Change a session's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateSession {
    /// The session.
    pub session: SessionId,
    /// Only if its configuration still has this etag. `None` means in any case.
    pub etag: Option<String>,
    /// What changes.
    pub change: ConfigChange,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// A change of some fields of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The fields, by their paths in the API.
    pub paths: Vec<String>,
    /// Their new values; what is empty or none goes back to its default. The other fields say
    /// nothing.
    pub values: SessionConfig,
}

/// Clear old tool results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneToolOutputs {
    /// The session.
    pub session: SessionId,
    /// In place of what its policy says.
    pub overrides: PruneOverrides,
    /// Only say what would be cleared.
    pub dry_run: bool,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Make the next prompt for a host that calls the model itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareContext {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// The model to prepare for. `None` means the session's.
    pub model: Option<String>,
    /// The shape of the prompt.
    pub shape: PromptShape,
    /// What waits in the queue goes into the transcript first.
    pub applies_queued: bool,
}

/// Show a session's next prompt. Nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderContext {
    /// The session.
    pub session: SessionId,
    /// The model to render for. `None` means the session's.
    pub model: Option<String>,
    /// The shape of the prompt.
    pub shape: PromptShape,
    /// As it was at this seq. `None` means as it is now.
    pub at: Option<Seq>,
}

/// Record what a call of the host's own used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordUsage {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// The model that was called. `None` means the session's.
    pub model: Option<String>,
    /// What its provider reported.
    pub usage: Usage,
    /// What the call was for.
    pub purpose: UsagePurpose,
    /// The message that it wrote.
    pub message: Option<MessageId>,
    /// The version of the transcript that its prompt was made from.
    pub version: Option<i64>,
}

/// Take a prune back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreToolOutputs {
    /// The session.
    pub session: SessionId,
    /// The seq of the prune.
    pub pruned_at: Seq,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Delete a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteSession {
    /// The session.
    pub session: SessionId,
    /// Only if its configuration still has this etag. `None` means in any case.
    pub etag: Option<String>,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Run a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteTurn {
    /// The session. `None` means a new one.
    pub session: Option<SessionId>,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// Where the stream goes on when the request is repeated.
    pub after: Seq,
    /// Where the turn begins.
    pub start: Start,
    /// Content that came with the input.
    pub contents: Vec<NewContent>,
    /// What this turn does differently from its session.
    pub request: TurnRequest,
    /// What to do when a turn is running.
    pub busy: BusyPolicy,
    /// The session to create when there is none.
    pub create: Option<SessionDraft>,
}

/// Where a turn begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// With what the user says.
    Input(Box<InputMessage>),
    /// With what waits in the queue.
    Queue,
    /// With the transcript as it stands.
    Transcript,
}

/// What a turn does differently from its session. Stored with the turn, so that any replica can go
/// on with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnRequest {
    /// Tools in place of the session's.
    pub tools: Option<ToolSet>,
    /// Bounds over the session's.
    pub limits: LimitsOverride,
    /// Model reference in place of the session's.
    pub model: Option<String>,
    /// How the model is to answer, over the session's.
    pub generation: Generation,
    /// Cancel it when no client has read its events for this long.
    pub cancel_after: Option<Duration>,
}

impl TurnRequest {
    /// The fields that are set, by their paths in the API.
    pub fn paths(&self) -> Vec<&'static str> {
        let Self {
            tools,
            limits,
            model,
            generation,
            cancel_after,
        } = self;
        let LimitsOverride {
            max_steps,
            max_output_tokens,
            max_total_tokens,
            turn_timeout,
            tool_timeout,
            grace,
        } = limits;
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
        let own = own
            .into_iter()
            .filter(|(_, set)| *set)
            .map(|(path, _)| path);
        own.chain(generation.paths()).collect()
    }
}

/// Compact a session's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// The session.
    pub session: SessionId,
    /// What is different from the session's policy.
    pub overrides: CompactionOverrides,
    /// Wishes for this summary, and how they are used.
    pub instructions: (String, InstructionsMode),
    /// The size to get to. `None` means by the strategy.
    pub target: Option<u32>,
    /// Answer when it is done.
    pub wait: bool,
    /// Only say what would be compacted.
    pub dry_run: bool,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// Take a compaction back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertCompaction {
    /// The session.
    pub session: SessionId,
    /// Which.
    pub compaction: CompactionId,
    /// Idempotency.
    pub idempotency: Idempotency,
}

/// What ExecuteTurn does when a turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BusyPolicy {
    /// Queue the input.
    Enqueue,
    /// Refuse.
    Reject,
    /// Cancel it, and start a turn with the input.
    Interrupt,
}

/// Which events to stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The session.
    pub session: SessionId,
    /// Only this turn's events; the stream ends with it.
    pub turn: Option<TurnId>,
    /// The last seq handled.
    pub after: Seq,
    /// Go on with live events.
    pub follow: bool,
}

/// Answers to tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitToolResults {
    /// The session.
    pub session: SessionId,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// The results in order; no call is named twice, nor in both lists.
    pub results: Vec<SubmittedResult>,
    /// The decisions in order.
    pub decisions: Vec<Decision>,
    /// Content that came with the results.
    pub contents: Vec<NewContent>,
}

/// What a person decided about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The call.
    pub call: CallId,
    /// The verdict.
    pub verdict: Verdict,
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Approve {
        /// With these arguments instead, a JSON object.
        edited: Option<String>,
    },
    /// Do not run it.
    Deny {
        /// Characters of the reason were replaced.
        sanitized: bool,
        /// Why, for the model; may be empty.
        reason: String,
    },
}

/// The answer to one call, as the host sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedResult {
    /// The call.
    pub call: CallId,
    /// Texts, cleaned but not cut, and media.
    pub parts: Vec<Given>,
    /// [`ToolOutcome::Success`] or [`ToolOutcome::Error`].
    pub outcome: ToolOutcome,
    /// Characters that cannot be stored were replaced.
    pub sanitized: bool,
    /// What the tool says to people, cleaned; empty when it says nothing to them.
    pub display_text: String,
}

/// The outcome of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerStatus {
    /// Taken.
    Accepted,
    /// The call has this answer already.
    Duplicate,
    /// Too late; nothing changed.
    Stale,
    /// Too early; nothing changed.
    NotRequested,
}

/// Store content, which follows piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBlob {
    /// Its MIME type.
    pub media_type: String,
    /// The length in bytes that it is said to have.
    pub bytes: Option<u64>,
    /// The id, its SHA-256, that it is said to have.
    pub id: Option<BlobId>,
    /// Idempotency; the hash does not know the content yet.
    pub idempotency: Idempotency,
}

/// Cancel a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelTurn {
    /// The session.
    pub session: SessionId,
    /// The turn. `None` means whichever is live.
    pub turn: Option<TurnId>,
    /// Idempotency.
    pub idempotency: Idempotency,
    /// Its messages are taken back.
    pub rollback: bool,
    /// Why, for the log and the event.
    pub reason: String,
}
