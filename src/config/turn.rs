//! The settings of the agent loop.

use std::time::Duration;

use crate::model::Limits;
use crate::settings::settings;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

settings! {
    /// `[turn]`: leases, limits and intervals of running turns.
    pub struct TurnConfig {
        /// How long a turn stays with a replica that sends no heartbeat. A shorter time means faster takeovers and more
        /// heartbeats.
        lease_ttl: Duration = SECOND * 15, in Duration::from_millis(500)..=MINUTE * 10;
        /// Maximum model calls of a turn that sets no limit.
        default_max_steps: u32 = 50, in 1..=1_000, "steps";
        /// How long a host may take to submit the result of a tool call.
        tool_timeout: Duration = MINUTE * 10, in SECOND..=HOUR * 24;
        /// How long a turn may take in total.
        turn_timeout: Duration = HOUR, in SECOND..=HOUR * 24 * 7;
        /// Maximum takeovers of a turn from failed processes without progress. Above it the turn fails as POISONED.
        max_takeovers: u32 = 5, in 0..=100, "takeovers";
        /// How long text deltas are collected before they are sent.
        delta_flush: Duration = Duration::from_millis(10), in Duration::ZERO..=SECOND;
        /// How often the text of a streaming message is written for readers on other replicas. Not used with the
        /// embedded PostgreSQL, which serves one process.
        share_interval: Duration = Duration::from_millis(250), in Duration::from_millis(10)..=MINUTE;
        /// Maximum delay until work is found for which no notification arrived. The database is polled after 70 to 90 %
        /// of this time, chosen at random each time.
        poll_interval: Duration = SECOND, in Duration::from_millis(10)..=MINUTE;
        /// Maximum turns that this process runs at once.
        max_running_turns: usize = 1000, in 1..=1_000_000, "turns";
        /// Maximum size of a model's response. It must fit into one event with room to spare.
        max_answer_bytes: usize = 768 << 10, in 64 << 10..=960 << 10, "bytes";
        /// Maximum size of a session's transcript as the model sees it. Above it no message is appended, and none of 64
        /// KiB or more is queued or starts a turn, until the session is compacted or pruned (REQUEST_TOO_LARGE).
        max_session_bytes: u64 = 24 << 20, in 1 << 20..=4 << 30, "bytes";
        /// Memory for prompts on this replica: of all calls that read whole sessions for hosts (RenderContext,
        /// PrepareContext, Compact, CountTokens, PruneToolOutputs), and of turns with 512 KiB or more of messages or
        /// media until their model begins to respond. Further ones wait.
        prompt_memory: usize = 192 << 20, in 16 << 20..=1 << 40, "bytes";
        /// Memory for messages and configurations of sessions that ran recently on this replica, so that their next
        /// turns and steps do not read them. One session uses at most an eighth. 0 keeps none.
        session_memory: usize = 32 << 20, in 0..=1 << 40, "bytes";
        /// Maximum model calls of one step, including the first, when calls fail with an error that may be temporary.
        max_call_attempts: u32 = 3, in 1..=20, "calls";
        /// Maximum wait before the second call. It doubles with each further call; the actual wait is drawn at random
        /// below it.
        retry_base_delay: Duration = SECOND, in Duration::ZERO..=HOUR;
        /// Maximum wait between two calls, unless the service requests one.
        retry_max_delay: Duration = SECOND * 20, in Duration::ZERO..=HOUR;
        /// Maximum wait that a model service may request. If it requests more, the turn fails and reports it.
        retry_after_max: Duration = MINUTE, in Duration::ZERO..=HOUR;
    }
}

impl TurnConfig {
    /// The limits of turns whose request and session set none.
    pub fn limits(&self) -> Limits {
        Limits {
            max_steps: self.default_max_steps,
            max_output_tokens: None,
            max_total_tokens: None,
            turn_timeout: self.turn_timeout,
            tool_timeout: self.tool_timeout,
            grace: Duration::ZERO,
        }
    }
}
