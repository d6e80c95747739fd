//! Applies a provider's configured rules on top of its dialect.

use crate::{
    config::rules::{ChatRules, ResponsesRules},
    model::service_rules::EffortForm,
    provider::{openai::dialect as chat, responses::dialect as responses},
};

/// The dialect of a Chat Completions service.
pub(super) fn chat(dialect: &chat::Dialect, rules: &ChatRules) -> chat::Dialect {
    let ChatRules {
        reasoning_back,
        reasoning_field,
        reasoning_placeholder,
        call_ids,
        own_call_ids,
        effort,
        max_stop_sequences,
    } = rules;
    let stops = max_stop_sequences.and_then(|most| usize::try_from(most).ok());
    chat::Dialect {
        reasoning_back: reasoning_back.unwrap_or(dialect.reasoning_back),
        reasoning_field: reasoning_field.unwrap_or(dialect.reasoning_field),
        reasoning_placeholder: reasoning_placeholder.unwrap_or(dialect.reasoning_placeholder),
        call_ids: call_ids.unwrap_or(dialect.call_ids),
        own_call_ids: own_call_ids.unwrap_or(dialect.own_call_ids),
        effort: effort.unwrap_or(dialect.effort),
        budget: dialect.budget.filter(|_| *effort != Some(EffortForm::Never)),
        max_stops: stops.or(dialect.max_stops),
        ..*dialect
    }
}

/// The dialect of a Responses service.
pub(super) fn responses(dialect: &responses::Dialect, rules: &ResponsesRules) -> responses::Dialect {
    let ResponsesRules { encrypted_reasoning, listed_efforts } = rules;
    responses::Dialect {
        encrypted_reasoning: encrypted_reasoning.unwrap_or(dialect.encrypted_reasoning),
        listed_efforts: listed_efforts.unwrap_or(dialect.listed_efforts),
        ..*dialect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::rules::AnthropicRules;
    use crate::model::service_rules::{CallIdRule, ReasoningBack, ReasoningField};

    #[test]
    fn rules_that_are_not_set_are_those_of_the_dialect() {
        for dialect in chat::DIALECTS {
            assert_eq!(chat(dialect, &ChatRules::default()), *dialect);
        }
        for dialect in responses::DIALECTS {
            assert_eq!(responses(dialect, &ResponsesRules::default()), *dialect);
        }
        assert_eq!(AnthropicRules::default().reasoning_back, None);
    }

    #[test]
    fn rules_that_are_set_win_over_those_of_the_dialect() {
        let rules = ChatRules {
            reasoning_back: Some(ReasoningBack::WhileCalls),
            reasoning_field: Some(ReasoningField::Reasoning),
            reasoning_placeholder: Some(true),
            call_ids: Some(CallIdRule::Nine),
            own_call_ids: Some(true),
            effort: Some(EffortForm::Never),
            max_stop_sequences: Some(0),
        };
        for dialect in chat::DIALECTS {
            let ruled = chat(dialect, &rules);
            let expected = chat::Dialect {
                reasoning_back: ReasoningBack::WhileCalls,
                reasoning_field: ReasoningField::Reasoning,
                reasoning_placeholder: true,
                call_ids: CallIdRule::Nine,
                own_call_ids: true,
                effort: EffortForm::Never,
                budget: None,
                max_stops: Some(0),
                ..*dialect
            };
            assert_eq!(ruled, expected);
        }
        let never = ChatRules { reasoning_back: Some(ReasoningBack::Never), ..ChatRules::default() };
        for dialect in chat::DIALECTS {
            let ruled = chat(dialect, &never);
            assert_eq!((ruled.reasoning_back, ruled.placeholder()), (ReasoningBack::Never, None), "{}", dialect.name);
        }
    }

    #[test]
    fn a_placeholder_can_be_switched_off_for_a_dialect_that_has_one() {
        let rules = ChatRules { reasoning_placeholder: Some(false), ..ChatRules::default() };
        let dialect = chat::named("deepseek").expect("a dialect");
        let ruled = chat(dialect, &rules);
        let expected = (ReasoningField::ReasoningContent, ReasoningBack::WhileCalls, None);
        assert_eq!((ruled.reasoning_field, ruled.reasoning_back, ruled.placeholder()), expected);
    }
}
