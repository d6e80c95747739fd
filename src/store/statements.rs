//! The statements that run for every turn, message or answer, for tests of their plans.

use std::slice::from_ref;

use super::{
    admission, blob, chunk, compaction, compaction_read, event, following, fork, import, lease, lost_commits, message,
    named_parameters::Named, queue, rollback, seen, session, stats, tool_call, turn_read, usage,
};

/// Returns the statements that run for every turn, message or answer, by name.
pub fn hot_statements() -> Vec<(&'static str, &'static str)> {
    [turn_statements(), queue_statements(), context_statements()].concat()
}

/// Returns transitions with their statements, in the order in which these are sent, except for commits.
pub fn hot_transitions() -> Vec<(&'static str, &'static [Named])> {
    vec![
        ("beat", from_ref(&lease::BEAT)),
        ("queue_outcome", from_ref(&queue::OUTCOME)),
        ("open_at", from_ref(&fork::OPEN_AT)),
    ]
}

/// Statements for turns, their owners and their readers.
fn turn_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("last_role", admission::LAST_ROLE),
        ("head", admission::HEAD),
        ("owned", &turn_read::OWNED.sql),
        ("session", &session::SESSION.sql),
        ("revision_at", &session::REVISION_AT.sql),
        ("call_ids", tool_call::CALL_IDS),
        ("calls", &tool_call::CALLS.sql),
        ("open_calls", &tool_call::OPEN.sql),
        ("seen_session", &seen::SESSION.sql),
        ("answers_open", &seen::OPEN_CALLS.sql),
        ("owned_here", lease::OWNED_HERE),
        ("cancels", &lease::CANCELS.sql),
        ("added_by_turn", &rollback::ADDED.sql),
        ("compactions_over_turn", &rollback::OVER.sql),
        ("heads", lease::HEADS),
        ("marks", &lost_commits::MARKS.sql),
        ("save_chunks", &chunk::SAVE.sql),
        ("elsewhere", &chunk::ELSEWHERE.sql),
        ("follow", &event::FOLLOW.sql),
        ("settled_between", event::SETTLED),
        ("results", &event::RESULTS.sql),
        ("messages_by_id", &message::BY_ID.sql),
        ("open_results", &message::OPEN_RESULTS.sql),
        ("live_after", &message::LIVE_AFTER.messages.sql),
        ("live_bytes", &message::LIVE_BYTES.sql),
        ("live_within", &message::LIVE_WITHIN.sql),
        ("variable", &message::VARIABLE.sql),
        ("newest", &message::NEWEST.sql),
        ("live_before", &message::LIVE_BEFORE.messages.sql),
        ("all_after", &message::ALL_AFTER.messages.sql),
        ("all_before", &message::ALL_BEFORE.messages.sql),
    ]
}

/// Statements for the queue.
fn queue_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("ahead", &following::AHEAD.sql),
        ("fate", &following::FATE.sql),
        ("look", &queue::LOOK.sql),
        ("queued", &queue::QUEUED.sql),
        ("queued_message", &queue::QUEUED_MESSAGE.sql),
    ]
}

/// Statements for the context: statistics, appended messages, prunes, compactions and forks.
fn context_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("stats", &stats::STATS.sql),
        ("beginnings", blob::BEGINNINGS),
        ("next_piece", &fork::NEXT_PIECE.sql),
        ("tail", &import::TAIL.sql),
        ("since", &usage::SINCE.sql),
        ("appended_calls", import::APPENDED_CALLS),
        ("renew_compaction", compaction::RENEW),
        ("standing", &compaction::STANDING.sql),
        ("compactions", &compaction_read::LIST.sql),
        ("compaction", &compaction_read::ONE.sql),
        ("compaction_in_force", &compaction_read::IN_FORCE.sql),
        ("newest_compaction", &compaction_read::NEWEST.sql),
    ]
}
