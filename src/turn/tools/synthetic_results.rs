//! Results that the model reads of calls which were not run, or gave none.

use crate::model::{CallId, Given, ToolOutcome, command::SubmittedResult, event::WaitsFor};

/// What the model reads when no result came in time.
const OVERDUE_WORDS: &str = "[No result came in time.]";

/// What the model reads when a call was not decided in time.
const UNDECIDED_WORDS: &str = "[The call was not run: it was not approved in time.]";

/// What the model reads when a person denied a call; the person's reason follows.
const DENIED_WORDS: &str = "[The call was not run: a person denied it.]";

/// The result of a call whose time is up.
pub(super) fn overdue(call: CallId, waits_for: &WaitsFor) -> SubmittedResult {
    let words = match waits_for {
        WaitsFor::Result { .. } => OVERDUE_WORDS,
        WaitsFor::Approval => UNDECIDED_WORDS,
    };
    SubmittedResult {
        call,
        parts: vec![words.into()],
        outcome: ToolOutcome::TimedOut,
        sanitized: false,
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
    }
}
