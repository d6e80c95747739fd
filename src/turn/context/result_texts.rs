//! Texts that contextd writes for the model into tool results: of calls that were not run, have no
//! result, or ran with edited arguments.

use crate::{
    context::{estimator::Estimator, truncate::truncate},
    model::{
        CallId, Content, OutputLimits, OutputPart, Part, Role, ToolExecutor, ToolOutcome, ToolResult,
        command::SubmittedResult,
        event::{CallCancelReason, PendingCall, WaitsFor},
    },
    session::change::SyntheticResult,
    turn::context::measured::counted,
};

/// The result of a call whose turn ended first.
const CLOSED_WORDS: &str = "[The call was closed without a result: the turn ended first.]";

/// The result of a call to the host past its deadline.
const OVERDUE_WORDS: &str = "[No result came in time.]";

/// The result of a call that contextd began itself and that has no result.
pub(in crate::turn) const UNKNOWN_WORDS: &str =
    "[No result came in time. The outcome of the call is unknown: it may have run.]";

/// The result of a call that was not approved before its deadline.
const UNDECIDED_WORDS: &str = "[The call was not run: it was not approved in time.]";

/// The result of a call that a person denied. The person's reason follows.
const DENIED_WORDS: &str = "[The call was not run: a person denied it.]";

/// Most characters of edited arguments that the model is shown.
const EDIT_CHARS: u32 = 4_096;

/// The result of a call past its deadline.
pub(in crate::turn) fn overdue(pending: &PendingCall) -> SubmittedResult {
    let words = match (&pending.waits_for, pending.executor) {
        (WaitsFor::Result { .. }, ToolExecutor::Host) => OVERDUE_WORDS,
        (WaitsFor::Result { .. }, ToolExecutor::Mcp) => UNKNOWN_WORDS,
        (WaitsFor::Approval, _) => UNDECIDED_WORDS,
    };
    SubmittedResult {
        call: pending.call.id.clone(),
        parts: vec![words.into()],
        outcome: ToolOutcome::TimedOut,
        sanitized: false,
        display_text: String::new(),
    }
}

/// The result of a call that a person denied.
pub(in crate::turn) fn denial(call: CallId, reason: String) -> SubmittedResult {
    let mut parts = vec![OutputPart::from(DENIED_WORDS)];
    parts.extend(Some(reason).filter(|reason| !reason.is_empty()).map(OutputPart::Text));
    SubmittedResult { call, parts, outcome: ToolOutcome::Denied, sanitized: false, display_text: String::new() }
}

/// The result of a call that is not run.
pub(in crate::turn) fn not_run(call: CallId, name: String, reason: CallCancelReason) -> Part {
    let words = match reason {
        CallCancelReason::UnknownTool => format!("[There is no tool named {name}.]"),
        CallCancelReason::Incomplete => {
            "[The call was not run: it was not complete, or its arguments are not a JSON object.]".to_owned()
        }
        CallCancelReason::TurnCancelled | CallCancelReason::TurnEnded => CLOSED_WORDS.to_owned(),
    };
    let outcome = match reason {
        CallCancelReason::UnknownTool | CallCancelReason::Incomplete => ToolOutcome::Error,
        CallCancelReason::TurnCancelled | CallCancelReason::TurnEnded => ToolOutcome::Cancelled,
    };
    Part::new(Content::ToolResult(ToolResult {
        call,
        name,
        parts: vec![words.into()],
        outcome,
        truncation: None,
        display_text: String::new(),
    }))
}

/// The note for the model that its call ran with edited arguments.
pub(in crate::turn) fn edit_note(arguments: &str) -> String {
    let limits = OutputLimits { max_chars: Some(EDIT_CHARS), ..OutputLimits::default() };
    format!("[A person changed the arguments of this call to: {}]", truncate(arguments, &limits).text)
}

/// The results with which a statement closes open calls.
pub(in crate::turn) fn synthetic(reason: CallCancelReason, estimator: Estimator) -> SyntheticResult<'static> {
    let result = not_run(CallId::new(""), String::new(), CallCancelReason::TurnEnded);
    SyntheticResult {
        text: CLOSED_WORDS,
        tokens: counted(&result, Role::Tool, estimator).tokens,
        overhead: estimator.overhead(Role::Tool, [&result]),
        reason,
    }
}
