//! How requests to a service differ from those to others: the choices of the tables in `provider`, which an operator can
//! override in `[providers.NAME.rules]`.

use serde::{Deserialize, Serialize};

use crate::settings::choices;

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
pub enum CallIdRule {
    /// Up to 40 letters, digits, `_` and `-`.
    Short,
    /// Nine letters and digits.
    Nine,
}

/// How reasoning effort is sent to a Chat Completions service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffortForm {
    /// No effort is sent. If the operator sets this, no budget is sent either.
    Never,
    /// `reasoning_effort`: a level of the model, or `none`, `low`, `medium` or `high` if its levels are not known.
    Levels,
    /// `reasoning_effort` for models whose levels are known. Other models reject it.
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

/// For which models encrypted reasoning is requested and sent back. Some services reject the request for models that do
/// not reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncryptedReasoning {
    /// For no model. Other provider-specific items are not sent back either, only text and tool calls: the service
    /// rejects such items without the reasoning that they were generated with.
    Never,
    /// For known reasoning models.
    Reasoning,
    /// For all models.
    Always,
}

/// Which reasoning is sent back to the model that produced it by an Anthropic Messages service.
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

choices!(ReasoningBack, ReasoningField, CallIdRule, EffortForm, EncryptedReasoning, SignedReasoning,);
