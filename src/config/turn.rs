//! The settings of the agent loop.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// `[turn]`: leases, limits and rhythms of running turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnConfig {
    /// How long a turn stays with a replica that sends no heartbeat. Sooner means a faster
    /// takeover and more heartbeats.
    #[serde(with = "duration")]
    pub lease_ttl: Duration,
    /// Most model calls of a turn that names no limit.
    pub default_max_steps: u32,
    /// How long a host may take to answer a tool call.
    #[serde(with = "duration")]
    pub tool_timeout: Duration,
    /// How long a turn may take in all.
    #[serde(with = "duration")]
    pub turn_timeout: Duration,
    /// How often a turn is taken over from a lost process before it fails.
    pub max_takeovers: u32,
    /// How long text deltas are gathered before they are sent.
    #[serde(with = "duration")]
    pub delta_flush: Duration,
    /// How often the text that is being written is handed to readers on other processes. Not with
    /// the embedded PostgreSQL, which has one process.
    #[serde(with = "duration")]
    pub share_interval: Duration,
    /// Within what time unannounced work is found and begun. It is looked for after 70 to 90 % of
    /// that, drawn anew each time.
    #[serde(with = "duration")]
    pub poll_interval: Duration,
    /// Most turns that this process runs at once.
    pub max_running_turns: usize,
    /// Largest answer of a model, in bytes: it must fit into one event with room to spare.
    pub max_answer_bytes: usize,
    /// Bytes of the messages of one session that a model sees, beyond which no message is appended, and
    /// no large one is queued or begins a turn, until they are compacted or pruned.
    pub max_session_bytes: u64,
    /// Bytes that all calls of this replica may hold together which read whole sessions for hosts
    /// (RenderContext, PrepareContext, Compact, CountTokens, PruneToolOutputs), and turns with 512 KiB of
    /// messages or of media or more until their model begins to answer; others wait.
    pub prompt_memory: usize,
    /// Bytes of messages and configurations of sessions that ran here lately, which this replica keeps: their
    /// next turns and steps do not read them. One session gets at most an eighth. 0 keeps none.
    pub session_memory: usize,
    /// Most calls of the model for one step, the first one included, when calls fail that may
    /// succeed later.
    pub max_call_attempts: u32,
    /// Longest wait before the second call; it doubles with each further one. The wait is drawn at
    /// random below that.
    #[serde(with = "duration")]
    pub retry_base_delay: Duration,
    /// Longest wait that contextd chooses itself.
    #[serde(with = "duration")]
    pub retry_max_delay: Duration,
    /// Longest wait that a model service may ask for; one that asks for more fails the turn, which
    /// says so.
    #[serde(with = "duration")]
    pub retry_after_max: Duration,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(15),
            default_max_steps: 50,
            tool_timeout: Duration::from_mins(10),
            turn_timeout: Duration::from_hours(1),
            max_takeovers: 5,
            delta_flush: Duration::from_millis(10),
            share_interval: Duration::from_millis(250),
            poll_interval: Duration::from_secs(1),
            max_running_turns: 1000,
            max_answer_bytes: 768 << 10,
            max_session_bytes: 24 << 20,
            prompt_memory: 192 << 20,
            session_memory: 32 << 20,
            max_call_attempts: 3,
            retry_base_delay: Duration::from_secs(1),
            retry_max_delay: Duration::from_secs(20),
            retry_after_max: Duration::from_mins(1),
        }
    }
}

impl TurnConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            lease_ttl,
            default_max_steps,
            tool_timeout,
            turn_timeout,
            max_takeovers,
            delta_flush,
            share_interval,
            poll_interval,
            max_running_turns,
            max_answer_bytes,
            max_session_bytes,
            prompt_memory,
            session_memory,
            max_call_attempts,
            retry_base_delay,
            retry_max_delay,
            retry_after_max,
        } = self;
        let second = Duration::from_secs(1);
        checks.duration(
            "turn.lease_ttl",
            *lease_ttl,
            Duration::from_millis(500)..=Duration::from_mins(10),
        );
        checks.number(
            "turn.default_max_steps",
            *default_max_steps,
            1..=1_000,
            "steps",
        );
        checks.duration(
            "turn.tool_timeout",
            *tool_timeout,
            second..=Duration::from_hours(24),
        );
        checks.duration(
            "turn.turn_timeout",
            *turn_timeout,
            second..=Duration::from_hours(7 * 24),
        );
        checks.number("turn.max_takeovers", *max_takeovers, 0..=100, "takeovers");
        checks.duration("turn.delta_flush", *delta_flush, Duration::ZERO..=second);
        checks.duration(
            "turn.share_interval",
            *share_interval,
            Duration::from_millis(10)..=Duration::from_mins(1),
        );
        checks.duration(
            "turn.poll_interval",
            *poll_interval,
            Duration::from_millis(10)..=Duration::from_mins(1),
        );
        checks.number(
            "turn.max_running_turns",
            *max_running_turns,
            1..=1_000_000,
            "turns",
        );
        checks.number(
            "turn.max_answer_bytes",
            *max_answer_bytes,
            64 << 10..=960 << 10,
            "bytes",
        );
        checks.number(
            "turn.max_session_bytes",
            *max_session_bytes,
            1 << 20..=4 << 30,
            "bytes",
        );
        checks.number(
            "turn.prompt_memory",
            *prompt_memory,
            16 << 20..=1 << 40,
            "bytes",
        );
        checks.number("turn.session_memory", *session_memory, 0..=1 << 40, "bytes");
        let retries = (retry_base_delay, retry_max_delay, retry_after_max);
        check_retries(checks, *max_call_attempts, retries);
    }
}

/// How often and after what waits a model is called again.
fn check_retries(
    checks: &mut Checks,
    max_call_attempts: u32,
    (base, most, after): (&Duration, &Duration, &Duration),
) {
    checks.number("turn.max_call_attempts", max_call_attempts, 1..=20, "calls");
    let wait = Duration::ZERO..=Duration::from_hours(1);
    checks.duration("turn.retry_base_delay", *base, wait.clone());
    checks.duration("turn.retry_max_delay", *most, wait.clone());
    checks.duration("turn.retry_after_max", *after, wait);
}
