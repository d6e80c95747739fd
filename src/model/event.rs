//! Durable events: the one vocabulary of everything that is sent to clients and stored.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Applied, CallId, Compaction, CompactionId, DropReason, Ending, Failure, FailureReason,
    Generation, Limits, MessageId, PruneReport, RequestId, Restored, Seq, TokenCount, ToolCall,
    ToolExecutor, TurnId, TurnResult, Usage, UsagePurpose, UsageTotals, generation::Unsupported,
    media::LeftOut,
};

pub use super::{id::StepPosition, usage::Estimate};

/// What happened. Content that is stored elsewhere (messages, tool results) is referred to and
/// filled in when the event is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// A turn began.
    TurnStarted(TurnStarted),
    /// A step began.
    StepStarted(StepStarted),
    /// A message is final.
    MessageCommitted {
        /// Which one.
        message: MessageId,
    },
    /// A tool is to be run.
    ToolCallRequested {
        /// What to run.
        call: ToolCall,
        /// How long the result is awaited.
        timeout: Duration,
        /// A person changed the arguments.
        edited: bool,
        /// Who runs it.
        executor: ToolExecutor,
    },
    /// A person is to decide about a call.
    ApprovalRequested {
        /// What the model wants to run.
        call: ToolCall,
        /// How long the decision is awaited.
        timeout: Duration,
    },
    /// A call has its result.
    ToolCallCompleted {
        /// The call.
        call: CallId,
    },
    /// A call was closed without a result.
    ToolCallCancelled {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// Why.
        reason: CallCancelReason,
    },
    /// Nothing goes on until the host acts.
    ActionRequired {
        /// Calls that wait for a result.
        results: Vec<CallId>,
        /// Calls that wait for an approval.
        approvals: Vec<CallId>,
    },
    /// A model call was accounted for.
    UsageRecorded(UsageRecorded),
    /// The model could not take a wish about its answer: it was left out.
    UnsupportedSetting(UnsupportedSetting),
    /// The model could not take a medium: it read something else in its place.
    UnsupportedPart(UnsupportedPart),
    /// A step is being repeated.
    TurnRetrying(TurnRetrying),
    /// The session's model changed. How many messages stay is filled in by the statement that
    /// writes the event.
    ModelSwitched(ModelSwitched),
    /// The turn goes on with another model of its policy.
    ModelFallback(ModelFallback),
    /// The session's configuration changed.
    SessionUpdated {
        /// The revision that is in force now.
        revision: i64,
        /// The fields that differ from before, by their paths in the API.
        paths: Vec<String>,
    },
    /// Old tool results were cleared. The seq that names the prune is the event's own.
    ContextPruned {
        /// Which, and what it saves.
        report: PruneReport,
    },
    /// Cleared tool results are back.
    ContextRestored {
        /// Which.
        restored: Restored,
    },
    /// A compaction began.
    CompactionStarted(Box<Compaction>),
    /// A compaction is in force.
    CompactionCompleted(Box<Compaction>),
    /// A compaction was given up.
    CompactionFailed(Box<Compaction>),
    /// A compaction was taken back.
    CompactionReverted(Box<Compaction>),
    /// Queued messages became one user message.
    MessagesApplied {
        /// The user message.
        message: MessageId,
        /// What was taken, in order.
        taken: Vec<Applied>,
    },
    /// A queued message was given up.
    QueuedMessageDropped {
        /// Which.
        message: MessageId,
        /// Why.
        reason: DropReason,
    },
    /// The turn ended.
    TurnEnded {
        /// How.
        ending: Ending,
        /// What came of it.
        result: TurnResult,
    },
}

/// A turn began.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnStarted {
    /// The request that started it.
    pub request: Option<RequestId>,
    /// Model reference.
    pub model: String,
    /// The bounds in force.
    pub limits: Limits,
    /// Names of the tools the model gets.
    pub tool_names: Vec<String>,
    /// The user message it starts with.
    pub input: Option<MessageId>,
}

/// A step began.
#[derive(Debug, Clone, PartialEq)]
pub struct StepStarted {
    /// Model reference.
    pub model: String,
    /// The session's revision in force.
    pub revision: i64,
    /// Predicted size of the prompt; `tokens` may be filled in by the statement that writes
    /// the event.
    pub context: TokenCount,
    /// The window in tokens; 0: not known.
    pub window: u32,
    /// Tokens of it that are kept free for the answer.
    pub reserve: u32,
}

/// The model could not take a wish about its answer: it was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct UnsupportedSetting {
    /// Which wish, and why.
    pub unsupported: Unsupported,
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference.
    pub model: String,
}

/// The model could not take a medium: it read something else in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct UnsupportedPart {
    /// Which, and why.
    pub left_out: LeftOut,
    /// Configured name of the provider.
    pub provider: String,
    /// Model reference.
    pub model: String,
}

/// A step is being repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRetrying {
    /// What went wrong.
    pub failure: Failure,
    /// The attempt that begins now.
    pub next_attempt: u32,
    /// How long until then.
    pub delay: Duration,
    /// The open message that is void.
    pub voided: Option<MessageId>,
}

/// The turn goes on with another model, to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFallback {
    /// The model that could not be called.
    pub from: String,
    /// The model that is called now.
    pub to: String,
    /// What was wrong with the model before.
    pub reason: FailureReason,
    /// The window of the new model; 0 if it is not known.
    pub window: u32,
    /// Tokens of it that are kept free for the answer.
    pub reserve: u32,
}

/// The session's model changed. How many messages stay is filled in by the statement that
/// writes the event.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSwitched {
    /// The model before.
    pub from: String,
    /// The model from the next step on.
    pub to: String,
    /// The revision that says so.
    pub revision: i64,
    /// How the new model is to answer.
    pub generation: Generation,
}

/// A model call was accounted for.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRecorded {
    /// What the call was for.
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: String,
    /// Its tokens. `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// The prediction made before the call.
    pub estimate: Option<Estimate>,
    /// Reported over estimated tokens of the model, learnt from earlier calls; 1 before the
    /// first.
    pub ratio: f64,
    /// The message that was written.
    pub message: Option<MessageId>,
    /// The compaction that the call was for.
    pub compaction: Option<CompactionId>,
}

/// Why a call was closed without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallCancelReason {
    /// The turn was cancelled.
    TurnCancelled,
    /// The turn ended first.
    TurnEnded,
    /// The model did not finish the call, or its arguments are not a JSON object.
    Incomplete,
    /// The turn has no such tool.
    UnknownTool,
}

/// A call that waits for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// What to run, or to decide about; with the approver's arguments, if they were changed.
    pub call: ToolCall,
    /// When it is closed with an error result.
    pub deadline: Timestamp,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// Who runs it.
    pub executor: ToolExecutor,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// Its result.
    Result {
        /// A person changed the arguments.
        edited: bool,
    },
    /// A person's decision.
    Approval,
}

/// A durable event as it is kept: what only the writing statement knew stands in columns, the rest
/// is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Position in the session.
    pub seq: Seq,
    /// The turn. `None` if it belongs to none.
    pub turn: Option<TurnId>,
    /// The step, from 1; 0 outside of steps.
    pub step: u32,
    /// The attempt at the step, from 1; 0 outside of steps.
    pub attempt: u32,
    /// When it happened.
    pub at: Timestamp,
    /// What kind it is, as named in the proto's oneof, e.g. `turn_started`.
    pub kind: String,
    /// Ids that it refers to: messages, calls, queued messages.
    pub refs: Vec<String>,
    /// A number that only the statement knew: the context size of `step_started`.
    pub size: Option<i64>,
    /// What the turn spent that this event ends, in tokens; `None` if it ends no turn.
    pub totals: Option<UsageTotals>,
    /// The encoded member of the oneof.
    pub payload: Vec<u8>,
}
