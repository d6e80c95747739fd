//! Events with minimal content, for tests that write events directly.

use std::time::Duration;

use contextd::{
    model::{
        AppliedMessage, Compaction, CompactionId, CompactionState, DropReason, Limits, MessageId, Payload, PruneReport,
        Restored, StepPosition, TokenBasis, TokenCount, UsagePurpose, UsageTotals,
        compaction::{Strategy, Trigger},
        event::{StepStarted, TurnStarted, UsageRecorded},
    },
    session::rows::{NewMessage, Rows},
};

pub fn turn_started() -> Payload {
    Payload::TurnStarted(TurnStarted {
        request: None,
        model: String::new(),
        limits: Limits {
            max_steps: 10,
            max_output_tokens: None,
            max_total_tokens: None,
            turn_timeout: Duration::from_secs(600),
            tool_timeout: Duration::from_secs(60),
            grace: Duration::ZERO,
        },
        tool_names: Vec::new(),
        input: None,
    })
}

/// A step with the first revision of the configuration.
pub fn step_started() -> Payload {
    Payload::StepStarted(StepStarted { model: String::new(), revision: 1, context: nothing(), window: 0, reserve: 0 })
}

/// A mark that identifies its writer: the usage of a model with that name.
pub fn noted(mark: &str) -> Payload {
    Payload::UsageRecorded(UsageRecorded {
        purpose: UsagePurpose::Turn,
        model: mark.to_owned(),
        usage: None,
        estimate: None,
        ratio: 1.0,
        message: None,
        compaction: None,
    })
}

/// Queued messages were applied to that message.
pub fn applied(message: impl Into<String>) -> Payload {
    Payload::MessagesApplied { message: MessageId::new(message), taken: Vec::<AppliedMessage>::new() }
}

pub fn dropped(message: &str) -> Payload {
    Payload::QueuedMessageDropped { message: MessageId::new(message), reason: DropReason::Superseded }
}

pub fn compacted(id: &str) -> Payload {
    Payload::CompactionCompleted(Box::new(compaction(id)))
}

pub fn compaction_started(id: &str) -> Payload {
    Payload::CompactionStarted(Box::new(compaction(id)))
}

pub fn compaction_reverted(id: &str) -> Payload {
    Payload::CompactionReverted(Box::new(compaction(id)))
}

/// The rows of a compaction that is applied, optionally with a summary.
pub fn compacted_rows(id: &str, estimator: &str, summary: Option<NewMessage>) -> Rows {
    let mut rows = Rows::new(estimator, 0);
    match summary {
        Some(summary) => rows.summary(compacted(id), summary),
        None => rows.event(compacted(id), StepPosition::default()),
    }
    rows
}

/// The rows of a compaction that is abandoned.
pub fn given_up_rows(id: &str) -> Rows {
    let mut rows = Rows::default();
    let failed = Payload::CompactionFailed(Box::new(compaction(id)));
    rows.event(failed, StepPosition::default());
    rows
}

/// A compaction with only an id.
pub fn compaction(id: &str) -> Compaction {
    Compaction {
        id: Some(CompactionId::new(id)),
        state: CompactionState::Applied,
        trigger: Trigger::Manual,
        strategy: Strategy::default(),
        range: None,
        messages_compacted: 0,
        messages_before: 0,
        messages_after: 0,
        tokens_before: nothing(),
        tokens_after: None,
        limit: 0,
        was_pruned: false,
        summary: None,
        usage: UsageTotals::default(),
        predecessor: None,
        referenced_tools: Vec::new(),
        unreferenced_tools: Vec::new(),
        failure: None,
        created_at: None,
        ended_at: None,
        reverted_at: None,
    }
}

fn nothing() -> TokenCount {
    TokenCount { tokens: 0, basis: TokenBasis::Heuristic, margin: 0, estimator: String::new() }
}

pub fn pruned() -> Payload {
    Payload::ContextPruned { report: PruneReport::default() }
}

pub fn restored() -> Payload {
    Payload::ContextRestored { restored: Restored::default() }
}
