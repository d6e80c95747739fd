//! What sets the requests of services apart, as data: encoders follow these rules, and clients are
//! shown the same values.

use std::collections::BTreeMap;

use super::call_ids::CallIds;
use crate::model::{
    Generation,
    generation::{ReasoningEffort, Setting, Unsupported},
};

#[cfg(test)]
mod tests;

/// All levels of effort, from the least on.
const EFFORTS: [ReasoningEffort; 7] = [
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
    ReasoningEffort::Max,
];

/// The rules for requests to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The dialect of the protocol. `None` if the protocol has no dialects.
    pub dialect: Option<&'static str>,
    /// Which reasoning of earlier answers is sent.
    pub reasoning: ReasoningRule,
    /// The field or type of block in which it is sent; empty if none is.
    pub reasoning_field: &'static str,
    /// Whether reasoning is sent only while nothing before it has changed.
    pub reasoning_bound_to_prefix: bool,
    /// What is sent with a call that has no reasoning.
    pub missing_reasoning: MissingReasoning,
    /// The ids of calls that the service takes. `None` if none is sent but the service's own.
    pub call_ids: Option<CallIds>,
    /// Whether the ids of calls that the model made are sent unchanged in any form.
    pub keeps_own_call_ids: bool,
    /// What is sent for a forced call beside reasoning that is asked for by an effort.
    pub forced_with_effort: ForcedCalls,
    /// The same beside a budget for reasoning.
    pub forced_with_budget: ForcedCalls,
    /// The levels of effort that requests without tools can have.
    pub efforts: Vec<ReasoningEffort>,
    /// The levels of effort that requests with tools can have.
    pub efforts_with_tools: Vec<ReasoningEffort>,
    /// The kind of provider that sends more levels beside tools. `None` if this one sends all.
    pub kind_for_reasoning_with_tools: Option<&'static str>,
    /// Stop sequences at most. `None` if no limit is known.
    pub max_stop_sequences: Option<usize>,
}

/// A part of an answer that is reasoning, as far as it decides whether it goes with a later prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastReasoning {
    /// The provider attached something to it.
    pub attached: bool,
    /// The model that is called wrote it.
    pub own: bool,
    /// The user has not spoken since.
    pub in_loop: bool,
    /// The answers between the user's messages before and after it call tools.
    pub in_calling_turn: bool,
}

impl PastReasoning {
    /// Reasoning for a service that takes it wherever it is in the conversation, or nowhere.
    pub(in crate::provider) fn anywhere(own: bool, attached: bool) -> Self {
        Self {
            attached,
            own,
            in_loop: false,
            in_calling_turn: false,
        }
    }
}

/// Which reasoning of earlier answers is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningRule {
    /// Where in the conversation.
    pub kept: ReasoningKept,
    /// Of which models.
    pub of: ReasoningOf,
}

/// Where in the conversation reasoning is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningKept {
    /// Nowhere.
    Never,
    /// In the current tool loop.
    InLoop,
    /// In the current tool loop, and in turns with calls.
    WhileCalls,
    /// Everywhere.
    Always,
}

/// Whose reasoning is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningOf {
    /// That of all models.
    AnyModel,
    /// That of the model that is called.
    SameModel,
    /// The same, if the service attached a signature or encrypted content to it.
    SameModelSigned,
}

/// What is sent with a call that has no reasoning, to a model that reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingReasoning {
    /// The call alone.
    Nothing,
    /// This text in the place of the reasoning or of its signature.
    Placeholder(&'static str),
    /// The call alone, and no budget for reasoning in that request.
    NoBudget,
}

/// What is sent where a call is forced and reasoning is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForcedCalls {
    /// Both.
    Both,
    /// The forced call; the model is not asked to reason.
    WithoutReasoning,
    /// The reasoning; the call is not forced.
    NotForced,
    /// The model cannot be forced, with reasoning or without.
    Never,
}

impl ReasoningRule {
    /// No reasoning is sent.
    pub const NEVER: Self = Self {
        kept: ReasoningKept::Never,
        of: ReasoningOf::SameModel,
    };

    /// Reasoning with a signature or encrypted content is sent to the model that wrote it.
    pub const SIGNED: Self = Self {
        kept: ReasoningKept::Always,
        of: ReasoningOf::SameModelSigned,
    };

    /// Whether this reasoning is sent: for what is written and for what is counted.
    pub fn takes(self, reasoning: PastReasoning) -> bool {
        let PastReasoning {
            attached,
            own,
            in_loop,
            in_calling_turn,
        } = reasoning;
        let is_kept = match self.kept {
            ReasoningKept::Never => false,
            ReasoningKept::InLoop => in_loop,
            ReasoningKept::WhileCalls => in_loop || in_calling_turn,
            ReasoningKept::Always => true,
        };
        let is_taken = match self.of {
            ReasoningOf::AnyModel => true,
            ReasoningOf::SameModel => own,
            ReasoningOf::SameModelSigned => own && attached,
        };
        is_kept && is_taken
    }
}

impl ForcedCalls {
    /// Whether the call is not forced where reasoning is asked for.
    pub(in crate::provider) fn drops_force(self) -> bool {
        match self {
            Self::NotForced | Self::Never => true,
            Self::Both | Self::WithoutReasoning => false,
        }
    }

    /// Whether the model is not asked to reason where a call is forced.
    pub(in crate::provider) fn drops_reasoning(self) -> bool {
        match self {
            Self::WithoutReasoning => true,
            Self::Both | Self::NotForced | Self::Never => false,
        }
    }
}

/// The levels of effort that requests to a model can have, by what is made of settings, which of
/// them are refused, and what a request says of a level. Of levels of which it says the same, the
/// highest is listed.
pub(in crate::provider) fn levels(
    fitted: impl Fn(&Generation) -> Generation,
    cannot_take: impl Fn(&Generation) -> Vec<Unsupported>,
    written: impl Fn(ReasoningEffort) -> Option<Vec<u8>>,
) -> Vec<ReasoningEffort> {
    let mut levels: BTreeMap<Vec<u8>, ReasoningEffort> = BTreeMap::new();
    for effort in EFFORTS {
        let wanted = fitted(&Generation {
            reasoning_effort: Some(effort),
            ..Generation::default()
        });
        let is_refused = cannot_take(&wanted)
            .iter()
            .any(|it| it.setting == Setting::ReasoningEffort);
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
