//! Words of contextd that the model reads in results of tools: of calls that were not run, gave no
//! result, or ran with other arguments.

use crate::{
    context::{estimator::Estimator, truncate::cut},
    model::{
        CallId, Content, Given, OutputLimits, Part, Role, ToolExecutor, ToolOutcome, ToolResult,
        command::SubmittedResult,
        event::{CallCancelReason, PendingCall, WaitsFor},
    },
    session::change::Synthetic,
    turn::run::measured::counted,
};

/// What the model reads in place of a result that will not come.
const CLOSED_WORDS: &str = "[The call was closed without a result: the turn ended first.]";

/// What the model reads when no result came in time.
const OVERDUE_WORDS: &str = "[No result came in time.]";

/// What the model reads of a call that contextd began, and whose result it will not get.
pub(super) const UNKNOWN_WORDS: &str =
    "[No result came in time. The outcome of the call is unknown: it may have run.]";

/// What the model reads when a call was not decided in time.
const UNDECIDED_WORDS: &str = "[The call was not run: it was not approved in time.]";

/// What the model reads when a person denied a call; the person's reason follows.
const DENIED_WORDS: &str = "[The call was not run: a person denied it.]";

/// Characters of an approver's arguments that the model is shown.
const EDIT_CHARS: u32 = 4_096;

/// The result of a call whose time is up.
pub(super) fn overdue(pending: &PendingCall) -> SubmittedResult {
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
pub(super) fn denial(call: CallId, reason: String) -> SubmittedResult {
    let mut parts = vec![Given::from(DENIED_WORDS)];
    parts.extend(
        Some(reason)
            .filter(|reason| !reason.is_empty())
            .map(Given::Text),
    );
    SubmittedResult {
        call,
        parts,
        outcome: ToolOutcome::Denied,
        sanitized: false,
        display_text: String::new(),
    }
}

/// The result of a call that is not run.
pub(in crate::turn) fn not_run(call: CallId, name: String, reason: CallCancelReason) -> Part {
    let words = match reason {
        CallCancelReason::UnknownTool => format!("[There is no tool named {name}.]"),
        CallCancelReason::Incomplete => {
            "[The call was not run: it was not complete, or its arguments are not a JSON object.]"
                .to_owned()
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

/// What tells the model that its call ran with other arguments.
pub(super) fn edit_note(arguments: &str) -> String {
    let limits = OutputLimits {
        max_chars: Some(EDIT_CHARS),
        ..OutputLimits::default()
    };
    format!(
        "[A person changed the arguments of this call to: {}]",
        cut(arguments, &limits).text
    )
}

/// The results with which a statement closes calls.
pub(in crate::turn) fn synthetic(
    reason: CallCancelReason,
    estimator: Estimator,
) -> Synthetic<'static> {
    let result = not_run(CallId::new(""), String::new(), CallCancelReason::TurnEnded);
    Synthetic {
        words: CLOSED_WORDS,
        tokens: counted(&result, Role::Tool, estimator).tokens,
        overhead: estimator.overhead(Role::Tool, [&result]),
        reason,
    }
}
