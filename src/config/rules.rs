//! `[providers.NAME.rules]`: what a service accepts, if neither its dialect nor the name of a model implies it. A key
//! that is set overrides both.

use serde::{Deserialize, Serialize};

use crate::settings::{Checks, choices, settings};

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
        call_ids: Option<CallIds> = None;
        /// Send the ids of the model's own tool calls unchanged, in any form.
        own_call_ids: Option<bool> = None;
        /// How reasoning effort is sent.
        effort: Option<EffortForm> = None;
        /// Maximum stop sequences of a request. 0: none are sent.
        max_stop_sequences: Option<u32> = None, in 0..=MAX_STOPS, "sequences";
    }
}

/// Which reasoning of earlier responses is sent to a Chat Completions service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningBack {
    /// No reasoning.
    Never,
    /// The reasoning of the same model since the user's last message, as text.
    InLoop,
    /// The reasoning of all models since the user's last message and in turns with tool calls, as text.
    WhileCalls,
    /// `reasoning_details`, unchanged, to the model that produced them.
    Details,
}

/// The field of an assistant message that contains its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    ReasoningContent,
    Reasoning,
}

/// Which tool call ids a service accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// Up to 40 letters, digits, `_` and `-`.
    Short,
    /// Nine letters and digits.
    Nine,
}

/// How reasoning effort is sent to a Chat Completions service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffortForm {
    /// Neither an effort nor a budget is sent.
    Never,
    /// `reasoning_effort`: a level of the model, or `none`, `low`, `medium` or `high` if its levels are not known.
    Levels,
    /// `reasoning_effort` for models whose levels are known.
    Listed,
    /// `reasoning_effort` as OpenAI's models accept it, by model name.
    Openai,
    /// `reasoning: {effort, max_tokens}`.
    Object,
    /// `thinking: {type}`, and `reasoning_effort` of `high` or `max`. Tool calls are not forced while reasoning is
    /// enabled.
    Thinking,
    /// `thinking: {type}`.
    Switch,
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

/// For which models encrypted reasoning is requested and sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncryptedReasoning {
    /// For no model. Other provider-specific items are not sent back either, only text and tool calls.
    Never,
    /// For known reasoning models.
    Reasoning,
    /// For all models.
    Always,
}

settings! {
    /// The rules of a service that speaks Anthropic Messages.
    #[derive(PartialEq, Eq)]
    pub struct AnthropicRules {
        /// Which reasoning is sent back to the model that produced it.
        reasoning_back: Option<SignedReasoning> = None;
    }
}

/// Which reasoning is sent back to the model that produced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignedReasoning {
    /// No reasoning.
    Never,
    /// Only reasoning with a signature.
    Signed,
    /// All reasoning, with or without a signature.
    Unsigned,
}

choices!(ReasoningBack, ReasoningField, CallIds, EffortForm, EncryptedReasoning, SignedReasoning,);

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
