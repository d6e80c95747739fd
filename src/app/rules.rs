//! Applies a provider's configured rules on top of its dialect.

use crate::{
    config::rules::{
        AnthropicRules, CallIds, ChatRules, EffortForm, EncryptedReasoning, ReasoningBack, ReasoningField,
        ResponsesRules, SignedReasoning,
    },
    provider::{anthropic, call_ids, openai::dialect as chat, responses::dialect as responses},
};

/// The dialect of a Chat Completions service.
pub(super) fn chat(dialect: &chat::Dialect, rules: &ChatRules) -> chat::Dialect {
    let ChatRules {
        reasoning_back: _,
        reasoning_field: _,
        reasoning_placeholder: _,
        call_ids,
        own_call_ids,
        effort,
        max_stop_sequences,
    } = rules;
    let stops = max_stop_sequences.and_then(|most| usize::try_from(most).ok());
    chat::Dialect {
        reasoning_back: reasoning_back(dialect.reasoning_back, rules),
        call_ids: call_ids.map_or(dialect.call_ids, |ids| match ids {
            CallIds::Short => call_ids::CallIdRule::Short,
            CallIds::Nine => call_ids::CallIdRule::Nine,
        }),
        own_call_ids: own_call_ids.unwrap_or(dialect.own_call_ids),
        effort: effort.map_or(dialect.effort, of_effort),
        budget: dialect.budget.filter(|_| *effort != Some(EffortForm::Never)),
        max_stops: stops.or(dialect.max_stops),
        ..*dialect
    }
}

fn reasoning_back(own: chat::ReasoningBack, rules: &ChatRules) -> chat::ReasoningBack {
    let (field, placeholder) = match own {
        chat::ReasoningBack::Text { field, placeholder, .. } => (field, placeholder),
        chat::ReasoningBack::Never | chat::ReasoningBack::Details => (chat::ReasoningField::Content, false),
    };
    let text = |kept| chat::ReasoningBack::Text {
        field: rules.reasoning_field.map_or(field, |field| match field {
            ReasoningField::ReasoningContent => chat::ReasoningField::Content,
            ReasoningField::Reasoning => chat::ReasoningField::Reasoning,
        }),
        kept,
        placeholder: rules.reasoning_placeholder.unwrap_or(placeholder),
    };
    match (rules.reasoning_back, own) {
        (Some(ReasoningBack::Never), _) => chat::ReasoningBack::Never,
        (Some(ReasoningBack::Details), _) => chat::ReasoningBack::Details,
        (Some(ReasoningBack::InLoop), _) => text(chat::ReasoningKept::InLoop),
        (Some(ReasoningBack::WhileCalls), _) => text(chat::ReasoningKept::WhileCalls),
        (None, chat::ReasoningBack::Text { kept, .. }) => text(kept),
        (None, chat::ReasoningBack::Never | chat::ReasoningBack::Details) => own,
    }
}

fn of_effort(form: EffortForm) -> chat::EffortForm {
    match form {
        EffortForm::Never => chat::EffortForm::Unknown,
        EffortForm::Levels => chat::EffortForm::Coarse,
        EffortForm::Listed => chat::EffortForm::Listed,
        EffortForm::Openai => chat::EffortForm::Fine,
        EffortForm::Object => chat::EffortForm::Object,
        EffortForm::Thinking => chat::EffortForm::Thinking,
        EffortForm::Switch => chat::EffortForm::Switch,
    }
}

/// The dialect of a Responses service.
pub(super) fn responses(dialect: &responses::Dialect, rules: &ResponsesRules) -> responses::Dialect {
    let ResponsesRules { encrypted_reasoning, listed_efforts } = rules;
    let encrypted = encrypted_reasoning.map(|models| match models {
        EncryptedReasoning::Never => responses::EncryptedReasoning::Never,
        EncryptedReasoning::Reasoning => responses::EncryptedReasoning::Reasoning,
        EncryptedReasoning::Always => responses::EncryptedReasoning::Always,
    });
    responses::Dialect {
        encrypted_reasoning: encrypted.unwrap_or(dialect.encrypted_reasoning),
        listed_efforts: listed_efforts.unwrap_or(dialect.listed_efforts),
        ..*dialect
    }
}

/// Which reasoning is sent back to an Anthropic Messages service. Returns `None` to decide by the model.
pub(super) fn anthropic(rules: &AnthropicRules) -> Option<anthropic::ReasoningBack> {
    let AnthropicRules { reasoning_back } = rules;
    reasoning_back.map(|reasoning| match reasoning {
        SignedReasoning::Never => anthropic::ReasoningBack::Never,
        SignedReasoning::Signed => anthropic::ReasoningBack::Signed,
        SignedReasoning::Unsigned => anthropic::ReasoningBack::SignedOrNot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_are_not_set_are_those_of_the_dialect() {
        for dialect in chat::DIALECTS {
            assert_eq!(chat(dialect, &ChatRules::default()), *dialect);
        }
        for dialect in responses::DIALECTS {
            assert_eq!(responses(dialect, &ResponsesRules::default()), *dialect);
        }
        assert_eq!(anthropic(&AnthropicRules::default()), None);
    }

    #[test]
    fn rules_that_are_set_win_over_those_of_the_dialect() {
        let rules = ChatRules {
            reasoning_back: Some(ReasoningBack::WhileCalls),
            reasoning_field: Some(ReasoningField::Reasoning),
            reasoning_placeholder: Some(true),
            call_ids: Some(CallIds::Nine),
            own_call_ids: Some(true),
            effort: Some(EffortForm::Never),
            max_stop_sequences: Some(0),
        };
        for dialect in chat::DIALECTS {
            let ruled = chat(dialect, &rules);
            let expected = chat::Dialect {
                reasoning_back: chat::ReasoningBack::Text {
                    field: chat::ReasoningField::Reasoning,
                    kept: chat::ReasoningKept::WhileCalls,
                    placeholder: true,
                },
                call_ids: call_ids::CallIdRule::Nine,
                own_call_ids: true,
                effort: chat::EffortForm::Unknown,
                budget: None,
                max_stops: Some(0),
                ..*dialect
            };
            assert_eq!(ruled, expected);
        }
        let never = ChatRules { reasoning_back: Some(ReasoningBack::Never), ..ChatRules::default() };
        for dialect in chat::DIALECTS {
            let back = chat(dialect, &never).reasoning_back;
            assert_eq!(back, chat::ReasoningBack::Never, "{}", dialect.name);
        }
    }

    #[test]
    fn a_placeholder_can_be_switched_off_for_a_dialect_that_has_one() {
        let rules = ChatRules { reasoning_placeholder: Some(false), ..ChatRules::default() };
        let dialect = chat::named("deepseek").expect("a dialect");
        let chat::ReasoningBack::Text { field, kept, placeholder } = chat(dialect, &rules).reasoning_back else {
            panic!("no text")
        };
        let expected = (chat::ReasoningField::Content, chat::ReasoningKept::WhileCalls, false);
        assert_eq!((field, kept, placeholder), expected);
    }
}
