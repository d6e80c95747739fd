//! What each generation of Claude models accepts, as a table, so that no other code inspects model
//! names. Sources: Anthropic's documentation of adaptive thinking, of preserved thinking and of
//! mid-turn system messages; for single models the flags of LiteLLM 1.109.1.

use crate::{
    model::service_rules::SignedReasoning,
    provider::{
        ModelInfo,
        discovery::Thinking as Listed,
        rules::{ForcedCalls, ReasoningAuthor, ReasoningKept, ReasoningRule},
    },
};

/// How thinking is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    /// The model has no thinking.
    Never,
    /// `enabled` with a budget in tokens.
    Budget,
    /// `adaptive` with an effort; a budget is still accepted.
    AdaptiveOrBudget,
    /// `adaptive` with an effort; a budget is rejected.
    Adaptive,
    /// `adaptive` with an effort; thinking cannot be disabled.
    Always,
}

/// What a family of models accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// How thinking is requested.
    pub(super) thinking: Thinking,
    /// Whether the model accepts temperature, `top_p` and `top_k`.
    pub(super) sampling: bool,
    /// Whether the model accepts temperature together with `top_p`.
    pub(super) temperature_with_top_p: bool,
    /// Whether a tool call can be forced.
    pub(super) forced_calls: bool,
    /// Whether the conversation may contain system messages: after a user message, before a
    /// response.
    pub(super) system_messages: bool,
    /// Which reasoning is sent back.
    pub(super) reasoning_back: SignedReasoning,
    /// Whether the signature of reasoning covers everything before it.
    pub(super) binds_prefix: bool,
    /// Whether the model supports a JSON schema for responses.
    pub(super) schemas: bool,
    /// Whether the model can continue an assistant message at the end of the prompt.
    pub(super) prefill: bool,
}

/// A model other than Claude, from a vendor that follows the first Claude generations with
/// thinking.
const OTHER: Family = Family {
    thinking: Thinking::Budget,
    sampling: true,
    temperature_with_top_p: true,
    forced_calls: true,
    system_messages: false,
    reasoning_back: SignedReasoning::Unsigned,
    binds_prefix: false,
    schemas: false,
    prefill: true,
};

/// Models whose thinking cannot be disabled.
const ALWAYS_THINK: [&str; 4] = ["fable", "mythos", "opus-5-5", "sonnet-5-5"];

/// Models of generation 5 that support forced tool calls, unlike others of that generation.
const CAN_BE_FORCED: [&str; 1] = ["haiku-5-5"];

/// The generation of a model whose name does not contain one.
const NEWEST: (u32, u32) = (u32::MAX, 0);

impl Family {
    /// Which reasoning of earlier responses is sent.
    pub(super) fn reasoning(self) -> ReasoningRule {
        match self.reasoning_back {
            SignedReasoning::Never => ReasoningRule::NEVER,
            SignedReasoning::Signed => ReasoningRule::SIGNED,
            SignedReasoning::Unsigned => ReasoningRule { kept: ReasoningKept::Always, of: ReasoningAuthor::SameModel },
        }
    }

    /// Applies the operator's choice of which reasoning is sent back. It takes precedence.
    #[must_use]
    pub(super) fn with_reasoning_back(self, said: Option<SignedReasoning>) -> Self {
        Self { reasoning_back: said.unwrap_or(self.reasoning_back), ..self }
    }

    /// Whether the model accepts a reasoning budget. If one is set, each response must start with
    /// reasoning.
    pub(super) fn takes_budget(self) -> bool {
        matches!(self.thinking, Thinking::Budget | Thinking::AdaptiveOrBudget)
    }

    /// What is sent if a tool call is forced and reasoning is requested by effort.
    pub(super) fn forced_with_effort(self) -> ForcedCalls {
        match self.thinking {
            _ if !self.forced_calls => ForcedCalls::Never,
            Thinking::Budget => ForcedCalls::NotForced,
            Thinking::AdaptiveOrBudget | Thinking::Adaptive => ForcedCalls::WithoutReasoning,
            Thinking::Never | Thinking::Always => ForcedCalls::Both,
        }
    }

    /// What is sent if a tool call is forced and reasoning is requested with a budget.
    pub(super) fn forced_with_budget(self) -> ForcedCalls {
        match (self.forced_calls, self.takes_budget()) {
            (false, _) => ForcedCalls::Never,
            (true, true) => ForcedCalls::NotForced,
            (true, false) => ForcedCalls::Both,
        }
    }

    /// What the model accepts. How thinking is requested is derived from the name only if the
    /// service's model list does not state it, because the name may be a gateway's alias.
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
            // The list does not state whether thinking can be disabled.
            (true, false) if named.thinking == Thinking::Always => Thinking::Always,
            (true, false) => Thinking::Adaptive,
        };
        Self { thinking, ..named }
    }

    /// What a model of this name accepts.
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
            reasoning_back: SignedReasoning::Signed,
            binds_prefix: generation >= (5, 1),
            schemas: generation >= (4, 5),
            prefill: generation < (4, 6),
        }
    }
}

/// The generation of a Claude model: 4.5 for `claude-opus-4-5-20251101`, 3.7 for
/// `claude-3-7-sonnet`. A name without a number is taken as the newest generation. Returns `None`
/// if the model is not a Claude model.
fn generation(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let mut numbers = name
        .split(['-', '.', '_', '@', ':'])
        // Longer numbers are dates.
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse().ok());
    let major = numbers.next();
    Some(major.map_or(NEWEST, |major| (major, numbers.next().unwrap_or(0))))
}

/// Whether the signature of the model's reasoning covers everything before it.
pub(crate) fn binds_prefix(model: &str) -> bool {
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
            ("best", Some(&[Listed::Budget, Listed::Adaptive]), Thinking::AdaptiveOrBudget),
            ("claude-opus-5-5", Some(&[Listed::Adaptive]), Thinking::Always),
            ("claude-opus-5-5", Some(&[]), Thinking::Never),
            ("claude-opus-4-5", Some(&[Listed::Budget]), Thinking::Budget),
        ];
        for (name, thinking, expected) in table {
            let model = ModelInfo { thinking: thinking.map(<[Listed]>::to_vec), ..ModelInfo::unknown(name) };
            assert_eq!(Family::of(&model).thinking, expected, "{name} {thinking:?}");
        }
    }

    #[test]
    fn families_take_what_is_documented() {
        use Thinking::{Adaptive, AdaptiveOrBudget, Always, Budget, Never};
        // Columns: thinking, sampling, forced calls, system messages, bound to the prefix.
        let table = [
            ("claude-3-5-sonnet", Never, true, true, false, false),
            ("claude-opus-4-1", Budget, true, true, false, false),
            ("claude-haiku-4-5", Budget, true, true, false, false),
            ("claude-sonnet-4-6", AdaptiveOrBudget, true, true, false, false),
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
                (family.thinking, family.sampling, family.forced_calls, family.system_messages, family.binds_prefix),
                (thinking, sampling, forced, system, binds),
                "{name}"
            );
        }
    }
}
