//! The settings of context policies: `[policies.NAME]`, chosen by a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{check::Checks, compaction, models, provider::ProvidersConfig};
use crate::model::{
    Keep, TakeMode, ToolExecution,
    compaction::CompactionPolicy,
    config::{MOST_FALLBACKS, PrunePolicy, UnknownWindow},
};

/// The policy of sessions that name none.
pub const SHIPPED_POLICY: &str = "default";

/// Policies by name. What a policy does not set is as in the shipped policy.
pub type PoliciesConfig = BTreeMap<String, PolicyConfig>;

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyConfig {
    /// Tokens kept free for the answer; 0: by the model.
    pub output_reserve: u32,
    /// The context window in tokens; 0: the model's.
    pub context_window: u32,
    /// What to do about a model whose window is not known.
    pub unknown_window: UnknownWindow,
    /// References of the models that a turn goes on with, in order, when its own cannot be called.
    pub fallback_models: Vec<String>,
    /// When and how the context is summarised.
    pub compaction: CompactionPolicy,
    /// When old tool results are cleared.
    pub prune: PrunePolicy,
    /// How tools run, and what happens to their outputs.
    pub tools: ToolPolicyConfig,
    /// How messages wait that are sent while a turn runs.
    pub queue: QueuePolicyConfig,
}

/// How messages wait, and how they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePolicyConfig {
    /// Most messages of a session that may wait.
    pub max_pending: u32,
    /// How many are taken at a step boundary.
    pub take: TakeMode,
}

/// How tools run, and how much of each one's output the model gets to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPolicyConfig {
    /// How the calls of one step are handed to the host.
    pub execution: ToolExecution,
    /// For tools that have no limits of their own.
    pub default_output_limits: OutputLimits,
    /// By tool name.
    pub output_limits: BTreeMap<String, OutputLimits>,
}

/// Limits of one tool's output; 0 is not limited here. Characters are Unicode scalar values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputLimits {
    /// Characters in all.
    pub max_output_chars: u32,
    /// Lines.
    pub max_lines: u32,
    /// Characters of one line.
    pub max_line_length: u32,
    /// Matches of a search-like tool, counted as non-empty lines.
    pub max_matches: u32,
    /// Which part is kept of what is too long.
    pub keep: Keep,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            output_reserve: 0,
            context_window: 0,
            unknown_window: UnknownWindow::default(),
            fallback_models: Vec::new(),
            compaction: CompactionPolicy::default(),
            prune: PrunePolicy::default(),
            tools: ToolPolicyConfig {
                execution: ToolExecution::default(),
                default_output_limits: OutputLimits {
                    max_output_chars: 120_000,
                    ..OutputLimits::default()
                },
                output_limits: shipped_output_limits(),
            },
            queue: QueuePolicyConfig {
                max_pending: 100,
                take: TakeMode::default(),
            },
        }
    }
}

impl PolicyConfig {
    pub(super) fn check(&self, checks: &mut Checks, name: &str, providers: &ProvidersConfig) {
        let Self {
            output_reserve,
            context_window,
            unknown_window: _,
            fallback_models,
            compaction: _,
            prune,
            tools,
            queue,
        } = self;
        check_fallbacks(
            &format!("policies.{name}.fallback_models"),
            fallback_models,
            checks,
            providers,
        );
        compaction::check(
            &self.compaction,
            checks,
            &format!("policies.{name}.compaction"),
        );
        let PrunePolicy {
            mode: _,
            minimum_tokens,
            protect_tokens,
            protect_turns,
            protected_tools: _,
        } = prune;
        let ToolPolicyConfig {
            execution: _,
            default_output_limits,
            output_limits,
        } = tools;
        let counts = [
            ("output_reserve", output_reserve, "tokens"),
            ("context_window", context_window, "tokens"),
            ("prune.minimum_tokens", minimum_tokens, "tokens"),
            ("prune.protect_tokens", protect_tokens, "tokens"),
            ("prune.protect_turns", protect_turns, "turns"),
        ];
        for (key, number, unit) in counts {
            checks.number(
                &format!("policies.{name}.{key}"),
                *number,
                0..=i32::MAX.unsigned_abs(),
                unit,
            );
        }
        let QueuePolicyConfig {
            max_pending,
            take: _,
        } = queue;
        checks.number(
            &format!("policies.{name}.queue.max_pending"),
            *max_pending,
            1..=1_000,
            "messages",
        );
        let prefix = format!("policies.{name}.tools");
        default_output_limits.check(checks, &format!("{prefix}.default_output_limits"));
        for (tool, limits) in output_limits {
            limits.check(checks, &format!("{prefix}.output_limits.{tool}"));
        }
    }
}

fn check_fallbacks(key: &str, models: &[String], checks: &mut Checks, providers: &ProvidersConfig) {
    checks.number(key, models.len(), 0..=MOST_FALLBACKS, "models");
    for (i, model) in models.iter().enumerate() {
        models::check_reference(key, model, checks, providers);
        checks.require(!models[..i].contains(model), key, || {
            format!("`{model}` is listed twice")
        });
    }
}

impl OutputLimits {
    /// The API's limits are 32-bit and signed.
    fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            max_output_chars,
            max_lines,
            max_line_length,
            max_matches,
            keep: _,
        } = self;
        let allowed = 0..=i32::MAX.unsigned_abs();
        checks.number(
            &format!("{prefix}.max_output_chars"),
            *max_output_chars,
            allowed.clone(),
            "characters",
        );
        checks.number(
            &format!("{prefix}.max_lines"),
            *max_lines,
            allowed.clone(),
            "lines",
        );
        checks.number(
            &format!("{prefix}.max_line_length"),
            *max_line_length,
            allowed.clone(),
            "characters",
        );
        checks.number(
            &format!("{prefix}.max_matches"),
            *max_matches,
            allowed,
            "matches",
        );
    }
}

pub(super) fn shipped_policies() -> PoliciesConfig {
    BTreeMap::from([(SHIPPED_POLICY.to_owned(), PolicyConfig::default())])
}

fn shipped_output_limits() -> BTreeMap<String, OutputLimits> {
    let unlimited = OutputLimits::default();
    BTreeMap::from([
        (
            "bash".to_owned(),
            OutputLimits {
                max_output_chars: 30_000,
                ..unlimited
            },
        ),
        (
            "grep".to_owned(),
            OutputLimits {
                max_matches: 1000,
                ..unlimited
            },
        ),
        (
            "read".to_owned(),
            OutputLimits {
                max_lines: 2000,
                max_line_length: 2000,
                ..unlimited
            },
        ),
    ])
}
