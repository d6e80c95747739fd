//! `[providers.NAME.rules]`: what a service accepts, if neither its dialect nor the name of a model implies it. A key
//! that is set overrides both.

use crate::{
    model::service_rules::{
        CallIdRule, EffortForm, EncryptedReasoning, ReasoningBack, ReasoningField, SignedReasoning,
    },
    settings::{Checks, settings},
};

/// Maximum of `max_stop_sequences`.
const MAX_STOPS: u32 = 16;

settings! {
    /// The rules of a service that speaks Chat Completions.
    #[derive(PartialEq, Eq)]
    pub struct ChatRules {
        /// Which reasoning of earlier responses is sent.
        reasoning_back: Option<ReasoningBack> = None;
        /// The field in which that reasoning is sent, for `in_loop` and `while_calls`.
        reasoning_field: Option<ReasoningField> = None;
        /// Send `[Not kept.]` to reasoning models as the reasoning of messages that have tool calls but no reasoning,
        /// for `in_loop` and `while_calls`.
        reasoning_placeholder: Option<bool> = None;
        /// Which tool call ids the service accepts. Other ids are replaced with derived ids.
        call_ids: Option<CallIdRule> = None;
        /// Send the ids of the model's own tool calls unchanged, in any form.
        own_call_ids: Option<bool> = None;
        /// How reasoning effort is sent.
        effort: Option<EffortForm> = None;
        /// Maximum stop sequences of a request. 0: none are sent.
        max_stop_sequences: Option<u32> = None, in 0..=MAX_STOPS, "sequences";
    }
}

settings! {
    /// The rules of a service that speaks the Responses API.
    #[derive(PartialEq, Eq)]
    pub struct ResponsesRules {
        /// For which models encrypted reasoning is requested and sent back.
        encrypted_reasoning: Option<EncryptedReasoning> = None;
        /// Send no reasoning effort to models whose levels are not known.
        listed_efforts: Option<bool> = None;
    }
}

settings! {
    /// The rules of a service that speaks Anthropic Messages.
    #[derive(PartialEq, Eq)]
    pub struct AnthropicRules {
        /// Which reasoning is sent back to the model that produced it.
        reasoning_back: Option<SignedReasoning> = None;
    }
}

impl ChatRules {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self { reasoning_back, reasoning_field, reasoning_placeholder, .. } = self;
        let key = |name: &str| format!("{prefix}.rules.{name}");
        let is_text = match reasoning_back {
            Some(ReasoningBack::InLoop | ReasoningBack::WhileCalls) => true,
            Some(ReasoningBack::Never | ReasoningBack::Details) | None => false,
        };
        let of_text = [
            ("reasoning_field", reasoning_field.is_some()),
            ("reasoning_placeholder", *reasoning_placeholder == Some(true)),
        ];
        for (name, is_set) in of_text {
            checks.require(is_text || !is_set, &key(name), || {
                "needs reasoning_back = \"in_loop\" or \"while_calls\" in the same rules".to_owned()
            });
        }
    }
}
