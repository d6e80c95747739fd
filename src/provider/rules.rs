//! The differences between the requests of services, as data. Encoders follow these rules, and the
//! API reports the same values to clients.

use std::collections::BTreeMap;

use crate::model::{
    Generation,
    generation::{ReasoningEffort, Setting, Unsupported},
    service_rules::CallIdRule,
};

#[cfg(test)]
mod tests;

/// All levels of reasoning effort, in ascending order.
const EFFORTS: [ReasoningEffort; 7] = [
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
    ReasoningEffort::Max,
];

/// The levels of effort of a model whose levels are unknown, if it cannot disable reasoning: those
/// that every reasoning model supports. A level that a model does not support fails the call.
pub(super) const COMMON_LEVELS: [ReasoningEffort; 3] =
    [ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];

/// The levels of effort of another model whose levels are unknown.
pub(super) const COMMON_LEVELS_AND_NONE: [ReasoningEffort; 4] =
    [ReasoningEffort::None, ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];

/// The budget for a level of effort, for a service that supports only budgets. The values are
/// Google's where it documents them.
pub(super) fn budget_tokens(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None => 0,
        ReasoningEffort::Minimal => 512,
        ReasoningEffort::Low => 1_024,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 24_576,
        ReasoningEffort::Xhigh | ReasoningEffort::Max => 32_768,
    }
}

/// The rules for requests to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The dialect of the protocol. `None` if the protocol has no dialects.
    pub dialect: Option<&'static str>,
    /// Which reasoning of earlier responses is sent.
    pub reasoning: ReasoningRule,
    /// The field or block type that carries reasoning. Empty if no reasoning is sent.
    pub reasoning_field: &'static str,
    /// Whether reasoning is sent only while the conversation before it is unchanged.
    pub reasoning_bound_to_prefix: bool,
    /// What is sent with a tool call that has no reasoning.
    pub missing_reasoning: MissingReasoning,
    /// The call ids that the service accepts. `None` if only ids that the service generated are
    /// sent.
    pub call_ids: Option<CallIdRule>,
    /// Whether ids of tool calls that the model made are sent unchanged in any form.
    pub keeps_own_call_ids: bool,
    /// What is sent if a tool call is forced and reasoning is requested by effort.
    pub forced_with_effort: ForcedCalls,
    /// What is sent if a tool call is forced and reasoning is requested with a token budget.
    pub forced_with_budget: ForcedCalls,
    /// The levels of reasoning effort for requests without tools.
    pub efforts: Vec<ReasoningEffort>,
    /// The levels of reasoning effort for requests with tools.
    pub efforts_with_tools: Vec<ReasoningEffort>,
    /// The kind of provider that can send more levels of effort with tools. `None` if this kind
    /// sends all.
    pub kind_for_reasoning_with_tools: Option<&'static str>,
    /// Limit on the number of stop sequences. `None` if unknown.
    pub max_stop_sequences: Option<usize>,
}

impl Rules {
    /// The rules of a service that needs no exceptions: `efforts` are the levels with tools and
    /// without.
    pub(super) fn plain(reasoning: ReasoningRule, efforts: Vec<ReasoningEffort>) -> Self {
        Self {
            dialect: None,
            reasoning,
            reasoning_field: "",
            reasoning_bound_to_prefix: false,
            missing_reasoning: MissingReasoning::Nothing,
            call_ids: Some(CallIdRule::Short),
            keeps_own_call_ids: false,
            forced_with_effort: ForcedCalls::Both,
            forced_with_budget: ForcedCalls::Both,
            efforts_with_tools: efforts.clone(),
            efforts,
            kind_for_reasoning_with_tools: None,
            max_stop_sequences: None,
        }
    }
}

/// The properties of a reasoning part that determine whether it is sent with a later prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastReasoning {
    /// The provider attached metadata to it.
    pub has_metadata: bool,
    /// It was written by the model that is called.
    pub own: bool,
    /// No user message follows it.
    pub in_loop: bool,
    /// It is in a turn, delimited by user messages, whose responses call tools.
    pub in_calling_turn: bool,
}

impl PastReasoning {
    /// Properties of reasoning for a service that sends it regardless of its position in the
    /// conversation, or never.
    pub(super) fn anywhere(own: bool, attached: bool) -> Self {
        Self { has_metadata: attached, own, in_loop: false, in_calling_turn: false }
    }
}

/// Which reasoning of earlier responses is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningRule {
    /// By position in the conversation.
    pub kept: ReasoningKept,
    /// By the model that wrote it.
    pub of: ReasoningAuthor,
}

/// Positions in the conversation at which reasoning is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningKept {
    Never,
    /// In the current tool loop.
    InLoop,
    /// In the current tool loop, and in turns with tool calls.
    WhileCalls,
    Always,
}

/// Models whose reasoning is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningAuthor {
    AnyModel,
    /// The model that is called.
    SameModel,
    /// The model that is called, if the service attached a signature or encrypted content.
    SameModelSigned,
}

/// What is sent to a reasoning model with a tool call that has no reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingReasoning {
    /// Only the tool call.
    Nothing,
    /// This text in place of the reasoning or its signature.
    Placeholder(&'static str),
    /// Only the tool call, and no reasoning budget in that request.
    NoBudget,
}

/// What is sent if a tool call is forced and reasoning is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForcedCalls {
    Both,
    /// The tool call is forced; reasoning is not requested.
    WithoutReasoning,
    /// Reasoning is requested; the tool call is not forced.
    NotForced,
    /// A tool call is never forced, with reasoning or without.
    Never,
}

impl ReasoningRule {
    /// Reasoning is never sent.
    pub const NEVER: Self = Self { kept: ReasoningKept::Never, of: ReasoningAuthor::SameModel };

    /// Reasoning with a signature or encrypted content is sent to the model that wrote it.
    pub const SIGNED: Self = Self { kept: ReasoningKept::Always, of: ReasoningAuthor::SameModelSigned };

    /// The model's own reasoning in the current tool loop is sent.
    pub const OWN_IN_LOOP: Self = Self { kept: ReasoningKept::InLoop, of: ReasoningAuthor::SameModel };

    /// All reasoning in the current tool loop, and in turns with tool calls, is sent.
    pub const ALL_WHILE_CALLS: Self = Self { kept: ReasoningKept::WhileCalls, of: ReasoningAuthor::AnyModel };

    /// Whether this reasoning is sent. Used both to encode requests and to estimate their size.
    pub fn includes(self, reasoning: PastReasoning) -> bool {
        let (own, in_loop) = (reasoning.own, reasoning.in_loop);
        let is_kept = match self.kept {
            ReasoningKept::Never => false,
            ReasoningKept::InLoop => in_loop,
            ReasoningKept::WhileCalls => in_loop || reasoning.in_calling_turn,
            ReasoningKept::Always => true,
        };
        let is_taken = match self.of {
            ReasoningAuthor::AnyModel => true,
            ReasoningAuthor::SameModel => own,
            ReasoningAuthor::SameModelSigned => own && reasoning.has_metadata,
        };
        is_kept && is_taken
    }
}

impl ForcedCalls {
    /// Whether a tool call is not forced if reasoning is requested.
    pub(super) fn drops_force(self) -> bool {
        matches!(self, Self::NotForced | Self::Never)
    }

    /// Whether reasoning is not requested if a tool call is forced.
    pub(super) fn drops_reasoning(self) -> bool {
        self == Self::WithoutReasoning
    }
}

/// The levels of reasoning effort for requests to a model. `fitted` and `cannot_take` return the
/// effective and the rejected settings; `written` returns the encoding of a level. Of levels with
/// the same encoding, only the highest is listed.
pub(super) fn levels(
    fitted: impl Fn(&Generation) -> Generation,
    cannot_take: impl Fn(&Generation) -> Vec<Unsupported>,
    written: impl Fn(ReasoningEffort) -> Option<Vec<u8>>,
) -> Vec<ReasoningEffort> {
    let mut levels: BTreeMap<Vec<u8>, ReasoningEffort> = BTreeMap::new();
    for effort in EFFORTS {
        let wanted = fitted(&Generation { reasoning_effort: Some(effort), ..Generation::default() });
        let is_refused = cannot_take(&wanted).iter().any(|it| it.setting == Setting::ReasoningEffort);
        let sent = wanted.reasoning_effort.filter(|_| !is_refused);
        if let Some(level) = sent
            && let Some(bytes) = written(level)
        {
            let highest = levels.entry(bytes).or_insert(level);
            *highest = level.max(*highest);
        }
    }
    let mut levels: Vec<_> = levels.into_values().collect();
    levels.sort_unstable();
    levels
}
