//! The statements that run for every turn, message or answer. Tests look at their plans.

use super::{
    admission, blob, chunk, compaction, compaction_read, delete, event, following, fork, import,
    lease, lock, mark, message, named::Named, prune, queue, session, stats, step, submission, take,
    tool_call, turn, turn_read, update, usage,
};

/// The statements that run for every turn, message or answer, by name. Tests look at their plans.
pub fn hot_statements() -> Vec<(&'static str, &'static str)> {
    [turn_statements(), queue_statements(), context_statements()].concat()
}

/// The transitions of plain statements, each with its statements in the order in which they are
/// sent. A transaction takes the locks that the transition needs before them.
pub fn hot_transitions() -> [(&'static str, &'static [Named]); 2] {
    [
        ("admit_new", &admission::ADMIT_NEW),
        ("finish", &turn::FINISH),
    ]
}

/// Of turns, their owners and their readers.
fn turn_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("admit", admission::ADMIT),
        ("begin_step", step::BEGIN_STEP),
        ("append", turn::APPEND),
        ("retry", turn::RETRY),
        ("gate", lock::GATE),
        ("lock_run", lock::LOCK_RUN),
        ("stop", turn::STOP),
        ("settle", turn::SETTLE),
        ("last_role", admission::LAST_ROLE),
        ("standing", admission::STANDING),
        ("owned", turn_read::OWNED),
        ("session", session::SESSION),
        ("revision_at", session::REVISION_AT),
        ("call_ids", tool_call::CALL_IDS),
        ("update", update::UPDATE),
        ("doomed", delete::DOOMED),
        ("delete", delete::DELETE),
        ("calls", tool_call::CALLS),
        ("open_calls", tool_call::OPEN),
        ("submit", submission::SUBMIT),
        ("cancel", lease::CANCEL),
        ("takeover", lease::TAKEOVER),
        ("hand_over", lease::HAND_OVER),
        ("owned_here", lease::OWNED_HERE),
        ("adopt_owned", lease::ADOPT_OWNED),
        ("release", lease::RELEASE),
        ("beat", lease::BEAT),
        ("cancels", lease::CANCELS),
        ("heads", lease::HEADS),
        ("marks", mark::MARKS),
        ("save_chunks", chunk::SAVE),
        ("elsewhere", chunk::ELSEWHERE),
        ("follow", event::FOLLOW),
        ("settled_between", event::SETTLED),
        ("results", event::RESULTS),
        ("messages_by_id", message::BY_ID),
        ("open_results", message::OPEN_RESULTS),
        ("live_after", message::LIVE_AFTER),
        ("variable", message::VARIABLE),
        ("newest", message::NEWEST),
        ("live_before", message::LIVE_BEFORE),
        ("all_after", message::ALL_AFTER),
        ("all_before", message::ALL_BEFORE),
    ]
}

/// Of the queue.
fn queue_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("enqueue", queue::ENQUEUE),
        ("start_idle", queue::START_IDLE),
        ("interrupt", queue::INTERRUPT),
        ("enqueue_unremembered", queue::ENQUEUE_UNREMEMBERED),
        ("queue_keep", queue::KEEP),
        ("queue_placed", queue::PLACED),
        ("queue_outcome", queue::OUTCOME),
        ("ahead", following::AHEAD),
        ("adopt", following::ADOPT),
        ("fate", following::FATE),
        ("look", queue::LOOK),
        ("take", take::TAKE),
        ("unqueue", queue::UNQUEUE),
        ("queued", queue::QUEUED),
        ("queued_message", queue::QUEUED_MESSAGE),
    ]
}

/// Of the context: its statistics, what is appended, pruned, compacted and forked.
fn context_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("stats", stats::STATS),
        ("beginnings", blob::BEGINNINGS),
        ("prune", prune::PRUNE),
        ("restore", prune::RESTORE),
        ("fork", fork::FORK),
        ("open_at", fork::OPEN_AT),
        ("import", import::IMPORT),
        ("tail", import::TAIL),
        ("record_usage", usage::RECORD),
        ("since", usage::SINCE),
        ("appended_calls", import::APPENDED_CALLS),
        ("begin_compaction", compaction::BEGIN),
        ("fail_compaction", compaction::FAIL),
        ("renew_compaction", compaction::RENEW),
        ("swap", compaction::SWAP),
        ("revert", compaction::REVERT),
        ("compaction_outcome", compaction::OUTCOME),
        ("compaction_spend", compaction::SPEND),
        ("compactions", compaction_read::LIST),
        ("compaction", compaction_read::ONE),
        ("compaction_in_force", compaction_read::IN_FORCE),
        ("newest_compaction", compaction_read::NEWEST),
    ]
}
