//! The settings of context policies: `[policies.NAME]`. Sessions select a policy by name.

use std::collections::BTreeMap;

use super::{compaction, models, provider::ProvidersConfig};
use crate::model::{
    Keep, TakeMode, ToolExecution,
    compaction::CompactionPolicy,
    config::{MAX_FALLBACK_MODELS, PrunePolicy, UnknownWindow},
};
use crate::settings::{Checks, settings};

/// The largest number that the API can represent: its numbers are 32-bit and signed.
const MAX: u32 = i32::MAX.unsigned_abs();

/// The name of the built-in policy, which applies to sessions that do not select one.
pub const SHIPPED_POLICY: &str = "default";

/// Policies by name. Settings that a policy leaves out are those of the built-in policy.
pub type PoliciesConfig = BTreeMap<String, PolicyConfig>;

settings! {
    /// `[policies.NAME]`: a context policy, which sessions select.
    #[derive(PartialEq)]
    pub struct PolicyConfig {
        /// Tokens kept free for the response. 0: the smaller of the model's output limit and 32,000, or 4,096 if that
        /// limit is unknown; at most a quarter of a window below 32,000 tokens, and half of a larger one.
        output_reserve: u32 = 0, in 0..=MAX, "tokens";
        /// The context window. 0: the model's.
        context_window: u32 = 0, in 0..=MAX, "tokens";
        /// How to handle a model whose window is not known.
        unknown_window: UnknownWindow = UnknownWindow::default();
        /// Models (`PROVIDER/MODEL`) that a turn continues with, in order, when its own cannot be called.
        fallback_models: Vec<String> = Vec::new();
        /// When and how the context is compacted.
        compaction: CompactionPolicy = CompactionPolicy::default();
        /// When old tool results are pruned.
        prune: PrunePolicy = PrunePolicy::default();
        /// How tools run, and how their results are limited.
        tools: ToolPolicyConfig = ToolPolicyConfig::default();
        /// How messages that are sent while a turn runs are queued.
        queue: QueuePolicyConfig = QueuePolicyConfig::default();
    }
}

settings! {
    /// `[policies.NAME.queue]`: how messages are queued, and how they are taken.
    #[derive(PartialEq, Eq, Copy)]
    pub struct QueuePolicyConfig {
        /// Maximum pending messages of a session (QUEUE_FULL).
        max_pending: u32 = 100, in 1..=1_000, "messages";
        /// How many are taken at a step boundary.
        take: TakeMode = TakeMode::default();
    }
}

settings! {
    /// `[policies.NAME.tools]`: how tools run, and how much of each result the model sees.
    #[derive(PartialEq, Eq)]
    pub struct ToolPolicyConfig {
        /// How the calls of one step are handed to the host.
        execution: ToolExecution = ToolExecution::default();
        /// For tools that have no limits in `output_limits`.
        default_output_limits: OutputLimitsConfig = OutputLimitsConfig { max_output_chars: 120_000, ..OutputLimitsConfig::default() };
        /// By tool name.
        output_limits: BTreeMap<String, OutputLimitsConfig> = shipped_output_limits();
    }
}

settings! {
    /// `[policies.NAME.tools.output_limits.TOOL]`: limits of one tool's results. 0: no limit. Characters are Unicode
    /// scalar values.
    #[derive(PartialEq, Eq, Copy)]
    pub struct OutputLimitsConfig {
        /// Maximum characters.
        max_output_chars: u32 = 0, in 0..=MAX, "characters";
        /// Maximum lines.
        max_lines: u32 = 0, in 0..=MAX, "lines";
        /// Maximum characters of a line.
        max_line_length: u32 = 0, in 0..=MAX, "characters";
        /// Maximum matches of a search tool, counted as lines that are not empty.
        max_matches: u32 = 0, in 0..=MAX, "matches";
        /// Which part of a longer result is kept.
        keep: Keep = Keep::default();
    }
}

impl PolicyConfig {
    pub(super) fn check(&self, checks: &mut Checks, name: &str, providers: &ProvidersConfig) {
        let Self { fallback_models, prune, .. } = self;
        check_fallbacks(&format!("policies.{name}.fallback_models"), fallback_models, checks, providers);
        compaction::check(&self.compaction, checks, &format!("policies.{name}.compaction"));
        let PrunePolicy { mode: _, minimum_tokens, protect_tokens, protect_turns, protected_tools: _ } = prune;
        let counts = [
            ("minimum_tokens", minimum_tokens, "tokens"),
            ("protect_tokens", protect_tokens, "tokens"),
            ("protect_turns", protect_turns, "turns"),
        ];
        for (key, number, unit) in counts {
            let key = format!("policies.{name}.prune.{key}");
            checks.range(&key, number, &(0..=MAX), unit);
        }
    }
}

fn check_fallbacks(key: &str, models: &[String], checks: &mut Checks, providers: &ProvidersConfig) {
    checks.range(key, &models.len(), &(0..=MAX_FALLBACK_MODELS), "models");
    for (i, model) in models.iter().enumerate() {
        models::check_reference(key, model, checks, providers);
        checks.require(!models[..i].contains(model), key, || format!("`{model}` is listed twice"));
    }
}

pub(super) fn shipped_policies() -> PoliciesConfig {
    BTreeMap::from([(SHIPPED_POLICY.to_owned(), PolicyConfig::default())])
}

fn shipped_output_limits() -> BTreeMap<String, OutputLimitsConfig> {
    let unlimited = OutputLimitsConfig::default();
    BTreeMap::from([
        ("bash".to_owned(), OutputLimitsConfig { max_output_chars: 30_000, ..unlimited }),
        ("grep".to_owned(), OutputLimitsConfig { max_matches: 1000, ..unlimited }),
        ("read".to_owned(), OutputLimitsConfig { max_lines: 2000, max_line_length: 2000, ..unlimited }),
    ])
}
