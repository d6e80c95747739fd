//! Mistakes in requests about the context of a session.

use contextd::pb::{self, FieldReason as F};

use super::{
    rows::{Row, invalid, missing},
    scene::{Call, Scene},
};

pub(super) fn stats(s: &Scene, change: impl FnOnce(&mut pb::GetContextStatsRequest)) -> Call {
    let mut request = pb::GetContextStatsRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.get_context_stats(request).await.map(drop) })
}

pub(super) fn prune(s: &Scene, change: impl FnOnce(&mut pb::PruneToolOutputsRequest)) -> Call {
    let mut request = pb::PruneToolOutputsRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.prune_tool_outputs(request).await.map(drop) })
}

pub(super) fn restore(s: &Scene, change: impl FnOnce(&mut pb::RestoreToolOutputsRequest)) -> Call {
    let mut request = pb::RestoreToolOutputsRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.restore_tool_outputs(request).await.map(drop) })
}

pub(super) fn compact(s: &Scene, change: impl FnOnce(&mut pb::CompactRequest)) -> Call {
    let mut request = pb::CompactRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.compact(request).await.map(drop) })
}

pub(super) fn compactions(s: &Scene, change: impl FnOnce(&mut pb::ListCompactionsRequest)) -> Call {
    let mut request = pb::ListCompactionsRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.list_compactions(request).await.map(drop) })
}

fn revert(s: &Scene, change: impl FnOnce(&mut pb::RevertCompactionRequest)) -> Call {
    let mut request = pb::RevertCompactionRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.revert_compaction(request).await.map(drop) })
}

/// Mistakes in requests about compactions.
fn about_compactions(s: &Scene) -> Vec<Row> {
    let all_wrong = |it: &mut pb::CompactRequest| {
        *it = pb::CompactRequest {
            strategy: 9,
            target_tokens: -1,
            instructions: "x".repeat(16_385),
            instructions_mode: 9,
            summary_model: "x".repeat(257),
            ..pb::CompactRequest::default()
        };
    };
    vec![
        invalid(
            "a compaction with everything wrong",
            compact(s, all_wrong),
            &[
                ("session_id", F::Required),
                ("strategy", F::Unknown),
                ("target_tokens", F::OutOfRange),
                ("instructions", F::TooLarge),
                ("instructions_mode", F::Unknown),
                ("summary_model", F::TooLarge),
            ],
        ),
        invalid(
            "a summary by what names no model",
            compact(s, |it| it.summary_model = "notes".into()),
            &[("summary_model", F::Invalid)],
        ),
        missing("a summary by nobody", compact(s, |it| it.summary_model = "a/b".into()), "MODEL_NOT_FOUND"),
        invalid(
            "a list of compactions of nothing",
            compactions(s, |it| *it = pb::ListCompactionsRequest { page_size: -1, ..Default::default() }),
            &[("session_id", F::Required), ("page_size", F::OutOfRange)],
        ),
        invalid("a revert of nothing", revert(s, |_| ()), &[("compaction_id", F::Required)]),
        missing(
            "a revert of what was never made",
            revert(s, |it| it.compaction_id = "nothing".into()),
            "COMPACTION_NOT_FOUND",
        ),
    ]
}

pub(super) fn render(s: &Scene, change: impl FnOnce(&mut pb::RenderContextRequest)) -> Call {
    let mut request = pb::RenderContextRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.render_context(request).await.map(drop) })
}

pub(super) fn record(s: &Scene, change: impl FnOnce(&mut pb::RecordUsageRequest)) -> Call {
    let usage = Some(pb::Usage { input_tokens: 70, output_tokens: 30, ..Default::default() });
    let mut request = pb::RecordUsageRequest { session_id: "talked".to_owned(), usage, ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.record_usage(request).await.map(drop) })
}

pub(super) fn prepare(s: &Scene, change: impl FnOnce(&mut pb::PrepareContextRequest)) -> Call {
    let mut request = pb::PrepareContextRequest { session_id: "talked".to_owned(), ..Default::default() };
    change(&mut request);
    let mut contexts = s.contexts();
    Box::pin(async move { contexts.prepare_context(request).await.map(drop) })
}

/// Mistakes in requests that render prompts or report calls.
fn host_calls(s: &Scene) -> Vec<Row> {
    let negative = pb::Usage {
        input_tokens: -1,
        output_tokens: -1,
        reasoning_tokens: -1,
        cache_read_tokens: -1,
        cache_write_tokens: -1,
        provider_tool_calls: -1,
        provider_usage_json: "[]".into(),
        ..Default::default()
    };
    vec![
        invalid(
            "a prompt of nothing in an unknown shape, from before the beginning",
            render(s, |it| *it = pb::RenderContextRequest { format: 99, at_seq: -1, ..Default::default() }),
            &[("session_id", F::Required), ("format", F::Unknown), ("at_seq", F::OutOfRange)],
        ),
        invalid("a prompt for a model too long", render(s, |it| it.model = "x".repeat(257)), &[("model", F::TooLarge)]),
        missing("a prompt for a model nobody has", render(s, |it| it.model = "a/b".into()), "MODEL_NOT_FOUND"),
        invalid(
            "a preparation of nothing in an unknown shape",
            prepare(s, |it| *it = pb::PrepareContextRequest { format: 99, ..Default::default() }),
            &[("session_id", F::Required), ("format", F::Unknown)],
        ),
        missing("a preparation for a model nobody has", prepare(s, |it| it.model = "a/b".into()), "MODEL_NOT_FOUND"),
        invalid(
            "a report of nothing for an unknown purpose",
            record(s, |it| *it = pb::RecordUsageRequest { purpose: 9, context_version: -1, ..Default::default() }),
            &[
                ("usage", F::Required),
                ("purpose", F::Unknown),
                ("session_id", F::Required),
                ("context_version", F::OutOfRange),
            ],
        ),
        invalid(
            "a report of less than nothing",
            record(s, |it| it.usage = Some(negative)),
            &[
                ("usage.input_tokens", F::OutOfRange),
                ("usage.output_tokens", F::OutOfRange),
                ("usage.reasoning_tokens", F::OutOfRange),
                ("usage.cache_read_tokens", F::OutOfRange),
                ("usage.cache_write_tokens", F::OutOfRange),
                ("usage.provider_tool_calls", F::OutOfRange),
                ("usage.provider_usage_json", F::NotJson),
            ],
        ),
        invalid(
            "a report about a message that was never written",
            record(s, |it| it.message_id = "never".into()),
            &[("message_id", F::Unknown)],
        ),
    ]
}

pub(super) fn rows(s: &Scene) -> Vec<Row> {
    let policy = pb::Policy {
        context_window: Some(0),
        prune: Some(pb::PrunePolicy { mode: 9, protect_turns: Some(-1), ..pb::PrunePolicy::default() }),
        ..pb::Policy::default()
    };
    let below = |it: &mut pb::PruneToolOutputsRequest| {
        (it.minimum_tokens, it.protect_tokens, it.protect_turns) = (Some(-1), Some(-1), Some(-1));
    };
    let mut rows = host_calls(s);
    rows.extend([
        invalid(
            "a window of nothing, and rules that nobody knows",
            s.configure(|it| it.policy_overrides = Some(policy)),
            &[
                ("session.policy_overrides.prune.mode", F::Unknown),
                ("session.policy_overrides.prune.protect_turns", F::OutOfRange),
                ("session.policy_overrides.context_window", F::OutOfRange),
            ],
        ),
        invalid(
            "a prune with numbers below 0",
            prune(s, below),
            &[("minimum_tokens", F::OutOfRange), ("protect_tokens", F::OutOfRange), ("protect_turns", F::OutOfRange)],
        ),
        invalid(
            "a return of what no prune cleared",
            restore(s, |it| it.pruned_at_seq = 1),
            &[("pruned_at_seq", F::Unknown)],
        ),
        invalid("a return of nothing", restore(s, |it| it.pruned_at_seq = 0), &[("pruned_at_seq", F::Required)]),
        invalid(
            "a return from before the beginning",
            restore(s, |it| it.pruned_at_seq = -1),
            &[("pruned_at_seq", F::OutOfRange)],
        ),
        invalid(
            "statistics of nothing in an unknown form",
            stats(s, |it| *it = pb::GetContextStatsRequest { format: 9, ..Default::default() }),
            &[("session_id", F::Required), ("format", F::Unknown)],
        ),
        invalid(
            "statistics for a model too long",
            stats(s, |it| it.model = "x".repeat(257)),
            &[("model", F::TooLarge)],
        ),
        missing("statistics for a model nobody has", stats(s, |it| it.model = "a/b".into()), "MODEL_NOT_FOUND"),
    ]);
    rows.extend(about_compactions(s));
    rows
}
