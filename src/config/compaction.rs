//! The settings of compactions: `[policies.NAME.compaction]`.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// Most characters of the wishes for summaries.
const LONGEST_INSTRUCTIONS: usize = 16_384;

/// When and how a context is summarised. The messages themselves stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactionPolicyConfig {
    /// Whether it happens by itself. When not, a turn that does not fit fails.
    pub enabled: bool,
    /// The first way to try.
    pub strategy: CompactionStrategy,
    /// The share of the window that sets off the strategies that have one; not set: 0.5 and 0.8.
    pub threshold: Option<f64>,
    /// The newest turns that stay, fewer where they alone fill the window.
    pub keep_turns: u32,
    /// The newest share of the context that `proactive_threshold` keeps.
    pub keep_ratio: f64,
    /// Who writes summaries, `PROVIDER/MODEL`; empty: the session's model.
    pub summary_model: String,
    /// Most tokens of a summary.
    pub summary_max_tokens: u32,
    /// Wishes for summaries.
    pub instructions: String,
    /// Whether they are added to the built-in instructions or replace them.
    pub instructions_mode: InstructionsMode,
    /// Whether summaries are written beside the turn, ahead of need: no pause, for a call of the
    /// model now and then that was not needed.
    pub background: bool,
    /// How closely the size is watched; not set: in two levels at local model servers.
    pub guard: Option<ContextGuard>,
    /// The share of the window at which the guard acts before a request.
    pub guard_request_ratio: f64,
    /// The share at which it stops an answer, makes the context smaller and has the step made
    /// again.
    pub guard_stream_ratio: f64,
    /// How often it does so in one step.
    pub guard_max_restarts: u32,
}

/// Ways to make a context smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStrategy {
    /// Once it no longer fits: a summary, and the newest turns.
    #[default]
    ReactiveOverflow,
    /// Once it has a share of the window: a summary, and the newest share.
    ProactiveThreshold,
    /// Once it has a share of the window: both ends. Calls no model.
    MiddleRemoval,
    /// Once it no longer fits: the newest. Calls no model.
    Truncation,
}

/// How wishes for summaries are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionsMode {
    /// Beside the built-in instructions.
    #[default]
    Append,
    /// In their place.
    Replace,
}

/// How closely the size is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextGuard {
    /// Before each request.
    None,
    /// Before each request and while the model answers.
    TwoLevel,
}

impl Default for CompactionPolicyConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            strategy: CompactionStrategy::default(),
            threshold: None,
            keep_turns: 2,
            keep_ratio: 0.3,
            summary_model: String::new(),
            summary_max_tokens: 2_000,
            instructions: String::new(),
            instructions_mode: InstructionsMode::default(),
            background: false,
            guard: None,
            guard_request_ratio: 0.8,
            guard_stream_ratio: 0.9,
            guard_max_restarts: 3,
        }
    }
}

impl CompactionPolicyConfig {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            enabled: _,
            strategy: _,
            threshold,
            keep_turns,
            keep_ratio,
            summary_model,
            summary_max_tokens,
            instructions,
            instructions_mode: _,
            background: _,
            guard: _,
            guard_request_ratio,
            guard_stream_ratio,
            guard_max_restarts,
        } = self;
        let key = |name: &str| format!("{prefix}.{name}");
        let most = i32::MAX.unsigned_abs();
        checks.number(&key("keep_turns"), *keep_turns, 0..=most, "turns");
        checks.number(
            &key("summary_max_tokens"),
            *summary_max_tokens,
            1..=most,
            "tokens",
        );
        checks.number(
            &key("guard_max_restarts"),
            *guard_max_restarts,
            0..=100,
            "restarts",
        );
        checks.number(&key("keep_ratio"), *keep_ratio, 0.0..=0.9, "of the size");
        let shares = [
            ("threshold", threshold.as_ref()),
            ("guard_request_ratio", Some(guard_request_ratio)),
            ("guard_stream_ratio", Some(guard_stream_ratio)),
        ];
        for (name, share) in shares {
            let fits = share.is_none_or(|share| *share > 0.0 && *share <= 1.0);
            checks.require(fits, &key(name), || {
                "must be above 0 and at most 1".to_owned()
            });
        }
        let named = summary_model.is_empty() || summary_model.split_once('/').is_some();
        checks.require(named, &key("summary_model"), || {
            format!("{summary_model:?} is not PROVIDER/MODEL")
        });
        let fits = instructions.chars().count() <= LONGEST_INSTRUCTIONS;
        checks.require(fits, &key("instructions"), || {
            format!("must have at most {LONGEST_INSTRUCTIONS} characters")
        });
    }
}
