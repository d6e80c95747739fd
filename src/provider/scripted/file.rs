//! The format of a script file as parsed by serde. `script.rs` validates the contents.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::script_context::Pick;
use crate::{
    model::{FinishReason, Usage},
    provider::error::Kind,
};

/// A script file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptFile {
    pub(super) display_name: Option<String>,
    #[serde(default = "default_context_window")]
    pub(super) context_window: u32,
    #[serde(default = "default_max_output")]
    pub(super) max_output: u32,
    #[serde(default = "yes")]
    pub(super) tools: bool,
    #[serde(default)]
    pub(super) input_media_types: Vec<String>,
    pub(super) delay_ms: Option<u64>,
    pub(super) chunk_chars: Option<u32>,
    #[serde(default)]
    pub(super) picks: BTreeMap<String, Pick>,
    pub(super) steps: Vec<StepFile>,
}

/// A step: when it applies, and its actions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFile {
    #[serde(default)]
    pub(super) when: Conditions,
    /// Each action is parsed by [`ActionFile::read`], which reports the place of an error.
    pub(super) say: Vec<Map<String, Value>>,
}

/// Conditions, all of which must hold. Of a list of texts to search for, one must be found; of a
/// list of tools or types, all must match.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Conditions {
    pub(super) call: Option<usize>,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) user_contains: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) system_contains: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) offers: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) has_result_of: Vec<String>,
    #[serde(deserialize_with = "one_or_many")]
    pub(super) user_shows: Vec<String>,
    pub(super) otherwise: bool,
}

/// A text, or a list of texts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}

/// One action: a verb, with a pace if it streams; or only a delay.
#[derive(Debug)]
pub(super) struct ActionFile {
    pub(super) verb: Option<Verb>,
    pub(super) delay_ms: Option<u64>,
    pub(super) chunk_chars: Option<u32>,
}

/// What an action does.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Text(String),
    Reasoning(String),
    Refusal(String),
    Repeat(RepeatFile),
    EchoPrompt(True),
    ToolCall(CallFile),
    WaitFor(String),
    Error(ErrorFile),
    Finish(FinishFile),
    EndWithoutFinish(True),
    Stall(True),
}

/// The value `true` of a verb without parameters.
#[derive(Debug, Deserialize)]
#[serde(try_from = "bool")]
pub(super) struct True;

/// A repeated text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepeatFile {
    pub(super) text: String,
    pub(super) times: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallFile {
    pub(super) name: String,
    #[serde(default)]
    pub(super) id: String,
    pub(super) arguments: Option<Map<String, Value>>,
    pub(super) raw_arguments: Option<String>,
}

/// A failure of the call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorFile {
    pub(super) kind: Kind,
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) code: String,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) times: Option<u32>,
}

/// The end of the response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishFile {
    pub(super) reason: Option<ReasonFile>,
    /// Missing: estimated. Null: none is reported.
    #[serde(default, deserialize_with = "present")]
    pub(super) usage: Option<Option<Usage>>,
}

/// The finish reasons.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReasonFile {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
    Refusal,
    /// The provider paused the turn and expects to be called again.
    Paused,
}

/// The reported usage, in tokens.
#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Usage", deny_unknown_fields, default)]
struct UsageFile {
    input: u32,
    output: u32,
    reasoning: u32,
    cache_read: u32,
    cache_write: u32,
    provider_tool_calls: u32,
    #[serde(skip)]
    provider_json: String,
}

impl ActionFile {
    /// Parses an action: one field for the verb, in addition to the fields of the pace.
    pub(super) fn read(mut fields: Map<String, Value>) -> Result<Self, String> {
        let delay_ms = take(&mut fields, "delay_ms")?;
        let chunk_chars = take(&mut fields, "chunk_chars")?;
        let verb = match fields.len() {
            0 => None,
            1 => {
                let read = Verb::deserialize(Value::Object(fields));
                Some(read.map_err(|error| error.to_string())?)
            }
            _ => return Err("an action must have one verb, such as text or tool_call".to_owned()),
        };
        Ok(Self { verb, delay_ms, chunk_chars })
    }
}

/// Removes a field and parses its value. Returns `None` if the field is missing.
fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str) -> Result<Option<T>, String> {
    let value = fields.remove(name).map(serde_json::from_value);
    value.transpose().map_err(|error| format!("{name}: {error}"))
}

impl TryFrom<bool> for True {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, &'static str> {
        value.then_some(Self).ok_or("can only be true")
    }
}

impl ErrorFile {
    /// The message, or the default for a failure of this kind.
    pub(super) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or(match self.kind {
            Kind::Auth => "the credentials were rejected",
            Kind::RateLimited => "too many requests",
            Kind::Timeout => "the request timed out",
            Kind::Overloaded => "overloaded",
            Kind::BadRequest => "the request was rejected",
            Kind::TooLong => "the prompt is too long",
            Kind::Broken => "the connection broke",
        })
    }
}

impl ReasonFile {
    /// Converts to the type of the model layer.
    pub(super) fn into_reason(self) -> FinishReason {
        match self {
            Self::Stop => FinishReason::Stop,
            Self::ToolCalls => FinishReason::ToolCalls,
            Self::Length => FinishReason::Length,
            Self::ContentFilter => FinishReason::ContentFilter,
            Self::Refusal => FinishReason::Refusal,
            Self::Paused => FinishReason::Paused,
        }
    }
}

/// Distinguishes a null field from a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Usage>>, D::Error> {
    #[derive(Deserialize)]
    struct Given(#[serde(with = "UsageFile")] Usage);
    let given = Option::<Given>::deserialize(deserializer)?;
    Ok(Some(given.map(|Given(usage)| usage)))
}

/// The default context window of a script, in tokens.
fn default_context_window() -> u32 {
    16_000
}

/// The default output limit of a script, in tokens.
fn default_max_output() -> u32 {
    4_096
}

/// The default for whether a script supports tools.
fn yes() -> bool {
    true
}
