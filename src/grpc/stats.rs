//! Encodes the statistics of a context for responses.

use crate::{
    codec::{
        compaction,
        field::{Field as _, messages},
        number::signed,
    },
    context::stats::tool_occupant as occupant,
    model::{SessionId, ToolCategory, event::Estimate},
    pb,
    store::stats::{TurnUsage, UsageEntry},
    turn::context::stats::ContextStats,
};

/// Maximum number of tools listed.
const MAX_LISTED_TOOLS: usize = 100;

/// Encodes the statistics.
pub(super) fn to_pb(it: &ContextStats, session: &SessionId) -> pb::ContextStats {
    let ContextStats { stats, model, budget, size, breakdown, tools, forecast, learnt, compactions } = it;
    let anchor = stats.anchor.as_ref();
    let predicted = anchor.filter(|anchor| anchor.has_prediction());
    let estimate =
        predicted.map(|anchor| Estimate { estimated: anchor.estimated, actual: anchor.input, basis: anchor.basis });
    pb::ContextStats {
        model: model.clone(),
        context_window: signed(budget.window),
        output_reserve: signed(budget.reserve),
        used: size.count.to_field(),
        used_ratio: share(size.count.tokens.into(), budget.window.into()),
        free_tokens: signed(budget.free(size.count.tokens, forecast.buffer)),
        auto_compact_buffer: signed(forecast.buffer),
        compaction_threshold: signed(forecast.threshold),
        tokens_until_compaction: signed(forecast.remaining_tokens),
        steps_until_compaction: forecast.steps.map(signed),
        categories: breakdown.shares.to_field(),
        categories_adjusted: breakdown.adjusted,
        tools: tools.iter().take(MAX_LISTED_TOOLS).map(tool_to_pb).collect(),
        size_basis: Some(pb::SizeBasis {
            last_input_tokens: signed(size.last_input),
            last_output_tokens: signed(size.last_output),
            new_tokens: i32::try_from(size.new).unwrap_or(i32::MAX),
        }),
        last_estimate: estimate.to_field(),
        calibration_ratio: *learnt,
        cache_hit_ratio: cache_hits(&stats.usage),
        pruned_count: signed(stats.ledger.pruned.parts),
        pruned_tokens: i32::try_from(stats.ledger.pruned.tokens).unwrap_or(i32::MAX),
        compacted_count: signed(stats.compacted),
        recent_compactions: compactions.iter().map(|it| compaction::to_pb(it, session)).collect(),
        recent_turns: stats.turns.to_field(),
        usage: stats.usage.to_field(),
        queued_count: signed(stats.queued.parts),
        context_version: stats.version.number(),
        as_of_seq: stats.last_seq.0,
        approaching_limit: budget.nearly_full(size.count.tokens),
    }
}

/// The share of all input tokens that was read from prompt caches.
fn cache_hits(spent: &[UsageEntry]) -> f64 {
    let sum = |of: fn(&UsageEntry) -> i64| spent.iter().map(of).fold(0, i64::saturating_add);
    share(sum(|spent| spent.totals.cache_read), sum(|spent| spent.totals.input))
}

fn share(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn tool_to_pb((name, category, tokens): &(String, ToolCategory, u32)) -> pb::ToolTokens {
    pb::ToolTokens { tool_name: name.clone(), tokens: signed(*tokens), category: occupant(*category).to_field() }
}

messages! {
    TurnUsage = TurnUsage { turn = turn_id, steps = step_count, totals = total_usage, }
    UsageEntry = UsageByModel { purpose, model, totals = usage, }
}
