//! The values of metric attributes. Each attribute has few values, and a caller can choose none of them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::model::{CancelCause, CompactionState, CompletionReason, Ending, FailureReason, FinishReason, UsagePurpose};

/// The value for names beyond the limit and for unknown names.
pub(super) const OTHER: &str = "_OTHER";

/// A bounded set of label values for names that callers can choose, such as model names. The first `most` distinct
/// names keep their value; all others share [`OTHER`].
#[derive(Debug)]
pub(super) struct Bounded {
    max_labels: usize,
    known: Mutex<BTreeSet<String>>,
}

impl Bounded {
    pub(super) fn new(most: usize) -> Self {
        Self { max_labels: most, known: Mutex::default() }
    }

    pub(super) fn label(&self, name: &str) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) {
            return name.to_owned();
        }
        if known.len() >= self.max_labels {
            return OTHER.to_owned();
        }
        known.insert(name.to_owned());
        name.to_owned()
    }
}

/// Why the server ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It sent more control frames than the limit.
    Flood,
    /// It never sent any data.
    Silent,
    /// It was idle (no call) for too long.
    Idle,
    /// It had no authenticated call for too long.
    Unauthenticated,
    /// It had no authenticated call and was closed to admit a newer connection.
    Displaced,
    /// Its TLS handshake failed.
    HandshakeFailed,
    /// Its TLS handshake took too long.
    HandshakeTimeout,
    /// Its TLS handshake was aborted to admit a newer connection.
    HandshakeDisplaced,
}

impl ConnectionEnd {
    pub(super) const ALL: [Self; 8] = [
        Self::Flood,
        Self::Silent,
        Self::Idle,
        Self::Unauthenticated,
        Self::Displaced,
        Self::HandshakeFailed,
        Self::HandshakeTimeout,
        Self::HandshakeDisplaced,
    ];
}
/// The outcome of a tool call that contextd made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallOutcome {
    /// The tool succeeded.
    Success,
    /// The tool returned an error.
    Error,
    /// The MCP server rejected the call.
    Refused,
    /// The call was not sent.
    NotRun,
    /// The result was lost or did not arrive in time; the tool may have run.
    Unknown,
}

pub(super) fn connection_end(why: ConnectionEnd) -> &'static str {
    match why {
        ConnectionEnd::Flood => "flood",
        ConnectionEnd::Silent => "silent",
        ConnectionEnd::Idle => "idle",
        ConnectionEnd::Unauthenticated => "unauthenticated",
        ConnectionEnd::Displaced => "displaced",
        ConnectionEnd::HandshakeFailed => "handshake_failed",
        ConnectionEnd::HandshakeTimeout => "handshake_timeout",
        ConnectionEnd::HandshakeDisplaced => "handshake_displaced",
    }
}

pub(super) fn tool_result(result: ToolCallOutcome) -> &'static str {
    match result {
        ToolCallOutcome::Success => "success",
        ToolCallOutcome::Error => "error",
        ToolCallOutcome::Refused => "refused",
        ToolCallOutcome::NotRun => "not_run",
        ToolCallOutcome::Unknown => "unknown",
    }
}

/// The state and reason of an ended turn.
pub(super) fn ending(ending: &Ending) -> (&'static str, &'static str) {
    match ending {
        Ending::Completed(reason) => ("completed", completion(*reason)),
        Ending::Cancelled { cause, .. } => ("cancelled", cancel(*cause)),
        Ending::Failed(reason) => ("failed", failure(reason.reason)),
    }
}

/// Every pair of state and reason that a turn can end with.
pub(super) fn endings() -> impl Iterator<Item = (&'static str, &'static str)> {
    use {CancelCause as C, CompletionReason as R, FailureReason as F};
    let completed = [R::Stop, R::MaxSteps, R::Length, R::ContentFilter, R::Budget, R::Deadline, R::Empty];
    let cancelled = [C::Requested, C::Interrupted, C::Disconnected, C::SessionDeleted];
    let failed = [
        F::ProviderAuth,
        F::ProviderRateLimited,
        F::ProviderTimeout,
        F::ProviderOverloaded,
        F::ProviderBadRequest,
        F::ProviderBroken,
        F::ContextOverflow,
        F::Poisoned,
        F::Internal,
        F::ModelNotFound,
        F::PolicyNotFound,
    ];
    let completed = completed.map(|reason| ("completed", completion(reason)));
    let cancelled = cancelled.map(|cause| ("cancelled", cancel(cause)));
    let failed = failed.map(|reason| ("failed", failure(reason)));
    completed.into_iter().chain(cancelled).chain(failed)
}

fn completion(reason: CompletionReason) -> &'static str {
    match reason {
        CompletionReason::Stop => "stop",
        CompletionReason::MaxSteps => "max_steps",
        CompletionReason::Length => "length",
        CompletionReason::ContentFilter => "content_filter",
        CompletionReason::Budget => "budget",
        CompletionReason::Deadline => "deadline",
        CompletionReason::Empty => "empty",
    }
}

fn cancel(cause: CancelCause) -> &'static str {
    match cause {
        CancelCause::Requested => "requested",
        CancelCause::Interrupted => "interrupted",
        CancelCause::Disconnected => "disconnected",
        CancelCause::SessionDeleted => "session_deleted",
    }
}

/// The name of a failure reason in metrics and logs.
pub fn failure(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::ProviderAuth => "provider_auth",
        FailureReason::ProviderRateLimited => "provider_rate_limited",
        FailureReason::ProviderTimeout => "provider_timeout",
        FailureReason::ProviderOverloaded => "provider_overloaded",
        FailureReason::ProviderBadRequest => "provider_bad_request",
        FailureReason::ProviderBroken => "provider_broken",
        FailureReason::ContextOverflow => "context_overflow",
        FailureReason::Poisoned => "poisoned",
        FailureReason::Internal => "internal",
        FailureReason::ModelNotFound => "model_not_found",
        FailureReason::PolicyNotFound => "policy_not_found",
    }
}

pub(super) fn purpose(purpose: UsagePurpose) -> &'static str {
    match purpose {
        UsagePurpose::Turn => "turn",
        UsagePurpose::Compaction => "compaction",
    }
}

/// The name of a finish reason; the GenAI conventions' name where one exists.
pub(super) fn finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Refusal => "refusal",
        FinishReason::Error => "error",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Paused => "paused",
    }
}

pub(super) fn compaction(state: CompactionState) -> &'static str {
    match state {
        CompactionState::Planned => "planned",
        CompactionState::Running => "running",
        CompactionState::Applied => "applied",
        CompactionState::Failed => "failed",
        CompactionState::Reverted => "reverted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_label() {
        let models = Bounded::new(2);
        let labels = ["a", "b", "c", "a", "d"].map(|name| models.label(name));
        assert_eq!(labels, ["a", "b", OTHER, "a", OTHER]);
    }
}
