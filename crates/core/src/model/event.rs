//! Durable events: everything that is stored in the event log and streamed to clients.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    AppliedMessage, CallId, Compaction, CompactionId, DropReason, Ending, Failure, FailureReason, Generation, Limits,
    MessageId, PruneReport, RequestId, Restored, Seq, TokenCount, ToolCall, ToolExecutor, TurnId, TurnResult, Usage,
    UsagePurpose, UsageTotals, generation::Unsupported, media::OmittedMedia,
};

pub use super::{id::StepPosition, usage::Estimate};

/// The payload of an event. Content that is stored elsewhere (messages, tool results) is referenced by id and filled in
/// when the event is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    TurnStarted(TurnStarted),
    StepStarted(StepStarted),
    /// A message is final.
    MessageCommitted {
        message: MessageId,
    },
    /// A tool call is handed out for execution.
    ToolCallRequested {
        call: ToolCall,
        /// How long the server waits for the result.
        timeout: Duration,
        /// The approver changed the arguments.
        edited: bool,
        executor: ToolExecutor,
    },
    /// A tool call requires a user's approval.
    ApprovalRequested {
        call: ToolCall,
        /// How long the server waits for the decision.
        timeout: Duration,
    },
    /// A call has its result.
    ToolCallCompleted {
        call: CallId,
    },
    /// A call was closed without a result.
    ToolCallCancelled {
        call: CallId,
        /// Name of the tool.
        name: String,
        reason: CallCancelReason,
    },
    /// The turn waits for the host.
    ActionRequired {
        /// Calls that wait for a result.
        results: Vec<CallId>,
        /// Calls that wait for an approval.
        approvals: Vec<CallId>,
    },
    /// A model call was accounted for.
    UsageRecorded(UsageRecorded),
    /// A generation setting that the model does not support was left out.
    UnsupportedSetting(UnsupportedSetting),
    /// A medium that the model does not support was replaced by text.
    UnsupportedPart(UnsupportedPart),
    TurnRetrying(TurnRetrying),
    /// The session's model changed. The statement that writes the event fills in how many messages are kept.
    ModelSwitched(ModelSwitched),
    /// The turn continues with a fallback model of its policy.
    ModelFallback(ModelFallback),
    /// The session's configuration changed.
    SessionUpdated {
        /// The new revision.
        revision: i64,
        /// The changed fields, by their paths in the API.
        paths: Vec<String>,
    },
    /// Old tool results were pruned. The seq of this event identifies the prune.
    ContextPruned {
        report: PruneReport,
    },
    /// Pruned tool results were restored.
    ContextRestored {
        restored: Restored,
    },
    CompactionStarted(Box<Compaction>),
    /// A compaction was applied.
    CompactionCompleted(Box<Compaction>),
    CompactionFailed(Box<Compaction>),
    CompactionReverted(Box<Compaction>),
    /// Queued messages were merged into one user message.
    MessagesApplied {
        /// The user message.
        message: MessageId,
        /// The queued messages, in order.
        taken: Vec<AppliedMessage>,
    },
    /// A queued message was dropped.
    QueuedMessageDropped {
        message: MessageId,
        reason: DropReason,
    },
    /// The turn ended.
    TurnEnded {
        ending: Ending,
        result: TurnResult,
    },
}

/// A turn started.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnStarted {
    /// The request that started it.
    pub request: Option<RequestId>,
    /// Model reference.
    pub model: String,
    /// The effective limits.
    pub limits: Limits,
    /// Names of the tools sent to the model.
    pub tool_names: Vec<String>,
    /// The user message that the turn starts with.
    pub input: Option<MessageId>,
}

/// A step started.
#[derive(Debug, Clone, PartialEq)]
pub struct StepStarted {
    /// Model reference.
    pub model: String,
    /// The session's revision in use.
    pub revision: i64,
    /// Predicted size of the prompt. The statement that writes the event may fill in `tokens`.
    pub context: TokenCount,
    /// The window in tokens; 0 if not known.
    pub window: u32,
    /// Tokens of the window that are reserved for the response.
    pub reserve: u32,
}

/// A generation setting that the model does not support was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct UnsupportedSetting {
    /// The setting and the reason.
    pub unsupported: Unsupported,
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference.
    pub model: String,
}

/// A medium that the model does not support was replaced by text.
#[derive(Debug, Clone, PartialEq)]
pub struct UnsupportedPart {
    /// The medium and the reason.
    pub left_out: OmittedMedia,
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference.
    pub model: String,
}

/// A step is retried.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRetrying {
    /// The failure of the previous attempt.
    pub failure: Failure,
    /// Number of the new attempt.
    pub next_attempt: u32,
    /// Backoff before the new attempt.
    pub delay: Duration,
    /// The open message that is voided.
    pub voided: Option<MessageId>,
}

/// The turn continues with a fallback model until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFallback {
    /// The model that could not be called.
    pub from: String,
    /// The model that is called from now on.
    pub to: String,
    /// Why `from` could not be called.
    pub reason: FailureReason,
    /// The window of the new model in tokens; 0 if not known.
    pub window: u32,
    /// Tokens of the window that are reserved for the response.
    pub reserve: u32,
}

/// The session's model changed. The statement that writes the event fills in how many messages are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSwitched {
    pub from: String,
    /// The model from the next step on.
    pub to: String,
    /// The revision that contains the change.
    pub revision: i64,
    /// Generation settings of the new model.
    pub generation: Generation,
}

/// A model call was accounted for.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRecorded {
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: String,
    /// `None` if the provider reported no usage.
    pub usage: Option<Usage>,
    /// The prediction made before the call.
    pub estimate: Option<Estimate>,
    /// Learned ratio of reported to estimated tokens of the model, from earlier calls; 1 before the first.
    pub ratio: f64,
    /// The message that the call produced.
    pub message: Option<MessageId>,
    /// The compaction that the call was made for.
    pub compaction: Option<CompactionId>,
}

/// Why a call was closed without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallCancelReason {
    TurnCancelled,
    /// The turn ended before the call had a result.
    TurnEnded,
    /// The model did not finish the call, or the arguments are not a JSON object.
    Incomplete,
    /// The turn has no tool of this name.
    UnknownTool,
}

/// A call that waits for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// The call to run or to decide about, with the approver's arguments if they were changed.
    pub call: ToolCall,
    /// When the call is closed with an error result.
    pub deadline: Timestamp,
    pub waits_for: WaitsFor,
    pub executor: ToolExecutor,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// The tool result.
    Result {
        /// The approver changed the arguments.
        edited: bool,
    },
    /// A user's decision.
    Approval,
}

/// A durable event as stored. Values that only the writing statement knows are in columns; the rest is encoded in
/// `payload`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Position in the session.
    pub seq: Seq,
    /// `None` if the event belongs to no turn.
    pub turn: Option<TurnId>,
    /// The step, from 1; 0 outside of steps.
    pub step: u32,
    /// The attempt at the step, from 1; 0 outside of steps.
    pub attempt: u32,
    pub at: Timestamp,
    /// The event's type: the name of its field in the proto's oneof, e.g. `turn_started`.
    pub kind: String,
    /// Ids of the messages, calls and queued messages that it references.
    pub refs: Vec<String>,
    /// A number that only the statement knows: the context size of `step_started`.
    pub size: Option<i64>,
    /// Tokens used by the turn that this event ends. `None` if it ends no turn.
    pub totals: Option<UsageTotals>,
    /// The encoded field of the oneof.
    pub payload: Vec<u8>,
}
