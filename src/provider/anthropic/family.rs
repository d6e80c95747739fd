//! What the generations of Claude models take: a table, so that the rest of the code asks no names.
//! Sources: Anthropic's documentation of adaptive thinking, of preserved thinking and of mid-turn
//! system messages; for single models the flags of LiteLLM 1.109.1.

use crate::provider::{
    ModelInfo,
    discovery::Thinking as Listed,
    rules::{ForcedCalls, ReasoningKept, ReasoningOf, ReasoningRule},
};

/// How a model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// It does not.
    Never,
    /// `enabled` with a budget in tokens.
    Budget,
    /// `adaptive` with an effort; a budget is still taken.
    AdaptiveOrBudget,
    /// `adaptive` with an effort; a budget is refused.
    Adaptive,
    /// The same, and it cannot be switched off.
    Always,
}

/// Which reasoning goes back to the model that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningBack {
    /// None.
    Never,
    /// What is signed.
    Signed,
    /// All, with a signature or without.
    SignedOrNot,
}

/// What a family of models takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// How it is asked to think.
    pub(super) thinking: Thinking,
    /// Whether it takes temperature, `top_p` and `top_k`.
    pub(super) sampling: bool,
    /// Whether it takes both temperature and `top_p` at once.
    pub(super) temperature_with_top_p: bool,
    /// Whether it can be forced to call a tool.
    pub(super) forced_calls: bool,
    /// Whether instructions may stand within the conversation: after what a user says, before an
    /// answer.
    pub(super) system_messages: bool,
    /// Which reasoning goes back to it.
    pub(super) reasoning_back: ReasoningBack,
    /// Whether what signs its reasoning covers everything before it.
    pub(super) binds_prefix: bool,
    /// Whether answers can be held to a schema.
    pub(super) schemas: bool,
    /// Whether it goes on from the last words of an answer.
    pub(super) prefill: bool,
}

/// A model that is no Claude: of another maker, who follows what the first generations with
/// thinking take.
const OTHER: Family = Family {
    thinking: Thinking::Budget,
    sampling: true,
    temperature_with_top_p: true,
    forced_calls: true,
    system_messages: false,
    reasoning_back: ReasoningBack::SignedOrNot,
    binds_prefix: false,
    schemas: false,
    prefill: true,
};

/// Models that think whatever they are told.
const ALWAYS_THINK: [&str; 4] = ["fable", "mythos", "opus-5-5", "sonnet-5-5"];

/// Of the generation 5, models that can be forced to call a tool though others of their age cannot.
const CAN_BE_FORCED: [&str; 1] = ["haiku-5-5"];

/// The generation of a model whose name tells none.
const NEWEST: (u32, u32) = (u32::MAX, 0);

impl Family {
    /// Which reasoning of earlier answers is sent.
    pub(super) fn reasoning(self) -> ReasoningRule {
        match self.reasoning_back {
            ReasoningBack::Never => ReasoningRule::NEVER,
            ReasoningBack::Signed => ReasoningRule::SIGNED,
            ReasoningBack::SignedOrNot => ReasoningRule {
                kept: ReasoningKept::Always,
                of: ReasoningOf::SameModel,
            },
        }
    }

    /// The same with what the operator says of its reasoning, which wins.
    #[must_use]
    pub(super) fn with_reasoning_back(self, said: Option<ReasoningBack>) -> Self {
        Self {
            reasoning_back: said.unwrap_or(self.reasoning_back),
            ..self
        }
    }

    /// Whether it takes a budget for reasoning: then each answer must begin with reasoning.
    pub(super) fn takes_budget(self) -> bool {
        match self.thinking {
            Thinking::Budget | Thinking::AdaptiveOrBudget => true,
            Thinking::Never | Thinking::Adaptive | Thinking::Always => false,
        }
    }

    /// What is sent for a forced call beside an effort.
    pub(super) fn forced_with_effort(self) -> ForcedCalls {
        match self.thinking {
            _ if !self.forced_calls => ForcedCalls::Never,
            Thinking::Budget => ForcedCalls::NotForced,
            Thinking::AdaptiveOrBudget | Thinking::Adaptive => ForcedCalls::WithoutReasoning,
            Thinking::Never | Thinking::Always => ForcedCalls::Both,
        }
    }

    /// The same beside a budget for reasoning.
    pub(super) fn forced_with_budget(self) -> ForcedCalls {
        match (self.forced_calls, self.takes_budget()) {
            (false, _) => ForcedCalls::Never,
            (true, true) => ForcedCalls::NotForced,
            (true, false) => ForcedCalls::Both,
        }
    }

    /// What the model takes. How it is asked to think is read of its name only where its service
    /// does not say that: the name may be an alias of a gateway's.
    pub(super) fn of(model: &ModelInfo) -> Self {
        let named = Self::of_name(&model.name);
        let Some(listed) = &model.thinking else {
            return named;
        };
        let takes = |kind: Listed| listed.contains(&kind);
        let thinking = match (takes(Listed::Adaptive), takes(Listed::Budget)) {
            (false, false) => Thinking::Never,
            (false, true) => Thinking::Budget,
            (true, true) => Thinking::AdaptiveOrBudget,
            // The list does not say whether it can be switched off.
            (true, false) if named.thinking == Thinking::Always => Thinking::Always,
            (true, false) => Thinking::Adaptive,
        };
        Self { thinking, ..named }
    }

    /// What the model of that name takes.
    pub(super) fn of_name(model: &str) -> Self {
        let Some(generation) = generation(model) else {
            return OTHER;
        };
        let name = model.replace('.', "-");
        let is = |names: &[&str]| names.iter().any(|known| name.contains(known));
        let thinking = match generation {
            (4, 6) => Thinking::AdaptiveOrBudget,
            (4, 7..) | (5.., _) if is(&ALWAYS_THINK) => Thinking::Always,
            (4, 7..) | (5.., _) => Thinking::Adaptive,
            (3, 7) | (4, _) => Thinking::Budget,
            (_, _) => Thinking::Never,
        };
        Self {
            thinking,
            sampling: generation < (4, 7),
            temperature_with_top_p: generation < (4, 1),
            forced_calls: generation < (5, 1) || is(&CAN_BE_FORCED),
            system_messages: generation >= (4, 8),
            reasoning_back: ReasoningBack::Signed,
            binds_prefix: generation >= (5, 1),
            schemas: generation >= (4, 5),
            prefill: generation < (4, 6),
        }
    }
}

/// The generation of a Claude model: `claude-opus-4-5-20251101` is of 4.5, `claude-3-7-sonnet` of
/// 3.7. One without a number is taken for the newest. `None` means it is no Claude.
fn generation(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let mut numbers = name
        .split(['-', '.', '_', '@', ':'])
        // Longer ones are dates.
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse().ok());
    Some(
        numbers
            .next()
            .map_or(NEWEST, |major| (major, numbers.next().unwrap_or(0))),
    )
}

/// Whether what signs a model's reasoning covers everything before it.
pub(in crate::provider) fn binds_prefix(model: &str) -> bool {
    Family::of_name(model).binds_prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_from_a_name_however_it_is_written() {
        let table = [
            ("claude-3-haiku-20240307", Some((3, 0))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-3.5-sonnet", Some((3, 5))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-opus-4-5-20251101", Some((4, 5))),
            ("claude-sonnet-4-6", Some((4, 6))),
            ("anthropic/claude-opus-4.7", Some((4, 7))),
            ("claude-sonnet-5", Some((5, 0))),
            ("claude-fable-5-1", Some((5, 1))),
            ("claude-opus-4-5@20251101", Some((4, 5))),
            ("claude-mythos-preview", Some(NEWEST)),
            ("deepseek-chat", None),
        ];
        for (name, expected) in table {
            assert_eq!(generation(name), expected, "{name}");
        }
    }

    #[test]
    fn a_list_of_models_wins_over_a_name() {
        let table: [(&str, Option<&[Listed]>, Thinking); 8] = [
            ("best", None, Thinking::Budget),
            ("best", Some(&[]), Thinking::Never),
            ("best", Some(&[Listed::Adaptive]), Thinking::Adaptive),
            ("best", Some(&[Listed::Budget]), Thinking::Budget),
            (
                "best",
                Some(&[Listed::Budget, Listed::Adaptive]),
                Thinking::AdaptiveOrBudget,
            ),
            (
                "claude-opus-5-5",
                Some(&[Listed::Adaptive]),
                Thinking::Always,
            ),
            ("claude-opus-5-5", Some(&[]), Thinking::Never),
            ("claude-opus-4-5", Some(&[Listed::Budget]), Thinking::Budget),
        ];
        for (name, thinking, expected) in table {
            let model = ModelInfo {
                thinking: thinking.map(<[Listed]>::to_vec),
                ..ModelInfo::unknown(name)
            };
            assert_eq!(Family::of(&model).thinking, expected, "{name} {thinking:?}");
        }
    }

    #[test]
    fn families_take_what_is_documented() {
        use Thinking::{Adaptive, AdaptiveOrBudget, Always, Budget, Never};
        // Thinking, sampling, forced calls, system messages, bound to what stands before it.
        let table = [
            ("claude-3-5-sonnet", Never, true, true, false, false),
            ("claude-opus-4-1", Budget, true, true, false, false),
            ("claude-haiku-4-5", Budget, true, true, false, false),
            (
                "claude-sonnet-4-6",
                AdaptiveOrBudget,
                true,
                true,
                false,
                false,
            ),
            ("claude-opus-4-7", Adaptive, false, true, false, false),
            ("claude-opus-4-8", Adaptive, false, true, true, false),
            ("claude-fable-5", Always, false, true, true, false),
            ("claude-fable-5-1", Always, false, false, true, true),
            ("claude-opus-5-5", Always, false, false, true, true),
            ("claude-haiku-5-5", Adaptive, false, true, true, true),
            ("glm-5", Budget, true, true, false, false),
        ];
        for (name, thinking, sampling, forced, system, binds) in table {
            let family = Family::of_name(name);
            assert_eq!(
                (
                    family.thinking,
                    family.sampling,
                    family.forced_calls,
                    family.system_messages,
                    family.binds_prefix
                ),
                (thinking, sampling, forced, system, binds),
                "{name}"
            );
        }
    }
}
