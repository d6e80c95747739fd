//! `[providers.NAME.rules]`: what a service takes, where neither its dialect nor the name of a model
//! says so. A key that is set wins over both.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// Stop sequences of a request that can be allowed, at most.
const MOST_STOPS: u32 = 16;

/// The rules of a service that speaks Chat Completions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatRules {
    /// Which reasoning of earlier answers is sent.
    pub reasoning_back: Option<ReasoningBack>,
    /// The field in which it is sent, for `in_loop` and `while_calls`.
    pub reasoning_field: Option<ReasoningField>,
    /// Send `[Not kept.]` as the reasoning of a message with calls that has none, to a model that
    /// reasons, for `in_loop` and `while_calls`.
    pub reasoning_placeholder: Option<bool>,
    /// Which ids of calls the service takes; others are sent as derived ids.
    pub call_ids: Option<CallIds>,
    /// Send the ids of calls that the model made unchanged in any form.
    pub own_call_ids: Option<bool>,
    /// How reasoning effort is sent.
    pub effort: Option<EffortForm>,
    /// Stop sequences of a request at most; `0`: none is sent.
    pub max_stop_sequences: Option<u32>,
}

/// Which reasoning of earlier answers is sent to a Chat Completions service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningBack {
    /// None.
    Never,
    /// As text, what the same model wrote since the user's last message.
    InLoop,
    /// As text, that of all models since the user's last message and of turns with calls.
    WhileCalls,
    /// `reasoning_details`, unchanged, to the model that wrote them.
    Details,
}

/// The field of an assistant's message that holds its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "names of fields")]
pub enum ReasoningField {
    ReasoningContent,
    Reasoning,
}

/// Which ids of calls a service takes.
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
    /// Not at all, and no budget either.
    Never,
    /// `reasoning_effort`: a level of the model, or `none`, `low`, `medium` or `high` where its levels
    /// are not known.
    Levels,
    /// `reasoning_effort` for models whose levels are known.
    Listed,
    /// `reasoning_effort` as OpenAI's models take it, by their names.
    Openai,
    /// `reasoning: {effort, max_tokens}`.
    Object,
    /// `thinking: {type}`, and `reasoning_effort` of `high` or `max`. Calls are not forced while the model
    /// reasons.
    Thinking,
    /// `thinking: {type}`.
    Switch,
}

/// The rules of a service that speaks the Responses API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponsesRules {
    /// For which models encrypted reasoning is asked for and sent back.
    pub encrypted_reasoning: Option<EncryptedReasoning>,
    /// Send no effort for models whose levels are not known.
    pub listed_efforts: Option<bool>,
}

/// For which models encrypted reasoning is asked for and sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncryptedReasoning {
    /// None, and no other items of the service: only words and calls are sent back.
    Never,
    /// Those that are known to reason.
    Reasoning,
    /// All.
    Always,
}

/// The rules of a service that speaks Anthropic Messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnthropicRules {
    /// Which reasoning is sent back to the model that wrote it.
    pub reasoning_back: Option<SignedReasoning>,
}

/// Which reasoning is sent back to the model that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignedReasoning {
    /// None.
    Never,
    /// Signed reasoning.
    Signed,
    /// All, with a signature or without.
    Unsigned,
}

impl ChatRules {
    pub(super) fn check(&self, checks: &mut Checks, prefix: &str) {
        let Self {
            reasoning_back,
            reasoning_field,
            reasoning_placeholder,
            call_ids: _,
            own_call_ids: _,
            effort: _,
            max_stop_sequences,
        } = self;
        let key = |name: &str| format!("{prefix}.rules.{name}");
        let is_text = match reasoning_back {
            Some(ReasoningBack::InLoop | ReasoningBack::WhileCalls) => true,
            Some(ReasoningBack::Never | ReasoningBack::Details) | None => false,
        };
        let of_text = [
            ("reasoning_field", reasoning_field.is_some()),
            (
                "reasoning_placeholder",
                *reasoning_placeholder == Some(true),
            ),
        ];
        for (name, is_set) in of_text {
            checks.require(is_text || !is_set, &key(name), || {
                "needs reasoning_back = \"in_loop\" or \"while_calls\" in the same rules".to_owned()
            });
        }
        if let Some(most) = max_stop_sequences {
            let key = key("max_stop_sequences");
            checks.number(&key, *most, 0..=MOST_STOPS, "sequences");
        }
    }
}
