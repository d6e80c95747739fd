//! The memory of contextd: the only SQL.
//!
//! Writes are single statements or pipelined transactions ([`pipeline`]): nothing is awaited between BEGIN and COMMIT, so a
//! caller that goes away leaves no open transaction behind. What decides (leases, deadlines) is the database's clock; ids are
//! the caller's.

/// A long statement, the shared tails behind it, and what it answers.
macro_rules! statement {
    ($($file:literal),+; $answer:literal) => { concat!($(include_str!($file)),+, $answer) };
}

pub mod admission;
pub mod attendance;
pub mod blob;
pub mod calibration;
pub mod chunk;
pub mod compaction;
pub mod compaction_read;
mod composite;
pub mod delete;
pub mod error;
pub mod event;
pub mod following;
pub mod fork;
pub mod import;
pub mod lease;
pub mod listed;
pub mod listen;
pub mod mark;
pub mod message;
pub mod migrate;
pub mod pipeline;
pub mod pool;
pub mod prune;
pub mod queue;
pub mod retention;
pub mod rollback;
pub mod row;
pub mod rows;
pub mod session;
mod statement;
pub mod stats;
pub mod step;
pub mod submission;
pub mod take;
pub mod tool_call;
pub mod turn;
pub mod turn_read;
pub mod update;
pub mod upload;
pub mod usage;

pub use error::Error;
pub use pool::{Connection, Database, Settings};
pub use rows::{NewMessage, Rows};

use std::time::Duration;

/// The database as one replica uses it.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    replica: String,
    lease: Duration,
}

impl Store {
    /// A store whose leases are taken in the name of `replica` (unique among running processes) for `lease`.
    pub fn new(database: Database, replica: impl Into<String>, lease: Duration) -> Self {
        Self { database, replica: replica.into(), lease }
    }

    /// In whose name leases are taken.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// How long a lease lasts after its last renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The connections that are kept for what must not wait: what is asked there is asked again within a lease.
    fn aside(&self) -> Database {
        self.database.aside(self.lease / 3)
    }

    /// Asks the database for a sign of life within that time.
    pub async fn ping(&self, within: Duration) -> Result<(), Error> {
        self.database.aside(within).read("-- store::ping\nselect 1", &[]).await.map(drop)
    }
}

/// The statements that run for every turn, message or answer, by name. Tests look at their plans.
#[doc(hidden)]
pub fn hot_statements() -> Vec<(&'static str, &'static str)> {
    [turn_statements(), queue_statements(), context_statements()].concat()
}

/// Of turns, their owners and their readers.
fn turn_statements() -> Vec<(&'static str, &'static str)> {
    vec![
        ("admit", admission::ADMIT),
        ("admit_new", admission::ADMIT_NEW),
        ("begin_step", step::BEGIN_STEP),
        ("append", turn::APPEND),
        ("retry", turn::RETRY),
        ("gate", turn::GATE),
        ("lock_run", turn::LOCK_RUN),
        ("finish", turn::FINISH),
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
        ("behind", usage::BEHIND),
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
