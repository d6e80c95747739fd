//! The settings of the agent loop.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::duration;

/// `[turn]`: leases, limits and rhythms of running turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnConfig {
    /// How long a turn belongs to a process that is not heard of. Sooner means a faster takeover and more heartbeats.
    #[serde(with = "duration")]
    pub lease_ttl: Duration,
    /// Most model calls of a turn that names no limit.
    pub default_max_steps: u32,
    /// Most model calls that a turn may ask for.
    pub max_max_steps: u32,
    /// How long a host may take to answer a tool call.
    #[serde(with = "duration")]
    pub tool_timeout: Duration,
    /// How long a turn may take in all.
    #[serde(with = "duration")]
    pub turn_timeout: Duration,
    /// How often a turn is taken over from a lost process before it fails.
    pub max_takeovers: u32,
    /// How often a model call that failed is tried again.
    pub model_retries: u32,
    /// How long text deltas are gathered before they are sent.
    #[serde(with = "duration")]
    pub delta_flush: Duration,
    /// How often to look for work that nobody announced.
    #[serde(with = "duration")]
    pub poll_interval: Duration,
    /// Most turns that this process runs at once.
    pub max_running_turns: usize,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(15),
            default_max_steps: 50,
            max_max_steps: 1000,
            tool_timeout: Duration::from_mins(10),
            turn_timeout: Duration::from_hours(1),
            max_takeovers: 5,
            model_retries: 3,
            delta_flush: Duration::from_millis(10),
            poll_interval: Duration::from_secs(1),
            max_running_turns: 1000,
        }
    }
}

impl TurnConfig {
    pub(super) fn check(&self, checks: &mut Checks) {
        let Self {
            lease_ttl,
            default_max_steps,
            max_max_steps,
            tool_timeout,
            turn_timeout,
            max_takeovers,
            model_retries,
            delta_flush,
            poll_interval,
            max_running_turns,
        } = self;
        let second = Duration::from_secs(1);
        checks.duration("turn.lease_ttl", *lease_ttl, Duration::from_millis(500)..=Duration::from_mins(10));
        checks.number("turn.max_max_steps", *max_max_steps, 1..=100_000, "steps");
        checks.number("turn.default_max_steps", *default_max_steps, 1..=*max_max_steps, "(turn.max_max_steps) steps");
        checks.duration("turn.tool_timeout", *tool_timeout, second..=Duration::from_hours(24));
        checks.duration("turn.turn_timeout", *turn_timeout, second..=Duration::from_hours(7 * 24));
        checks.number("turn.max_takeovers", *max_takeovers, 0..=100, "takeovers");
        checks.number("turn.model_retries", *model_retries, 0..=20, "retries");
        checks.duration("turn.delta_flush", *delta_flush, Duration::ZERO..=second);
        checks.duration("turn.poll_interval", *poll_interval, Duration::from_millis(10)..=Duration::from_mins(1));
        checks.number("turn.max_running_turns", *max_running_turns, 1..=1_000_000, "turns");
    }
}
