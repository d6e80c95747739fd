//! The form of a script file, as serde reads it. `script.rs` checks what it says.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

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
    pub(super) picks: BTreeMap<String, PickFile>,
    pub(super) steps: Vec<StepFile>,
}

/// Words to pick from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PickFile {
    pub(super) from: Vec<String>,
    pub(super) default: String,
}

/// A step: when it answers, and what it says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFile {
    #[serde(default)]
    pub(super) when: WhenFile,
    pub(super) say: Vec<ActionFile>,
}

/// Conditions; all that are given must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenFile {
    pub(super) call: Option<usize>,
    #[serde(default)]
    pub(super) user_contains: OneOrMany,
    #[serde(default)]
    pub(super) system_contains: OneOrMany,
    #[serde(default)]
    pub(super) offers: OneOrMany,
    #[serde(default)]
    pub(super) has_result_of: OneOrMany,
    #[serde(default)]
    pub(super) user_shows: OneOrMany,
    #[serde(default)]
    pub(super) otherwise: bool,
}

/// A text, or a list of texts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// One action: one of the verbs, with a pace where it streams.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionFile {
    pub(super) text: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) repeat: Option<RepeatFile>,
    pub(super) echo_prompt: Option<bool>,
    pub(super) tool_call: Option<CallFile>,
    pub(super) wait_for: Option<String>,
    pub(super) error: Option<ErrorFile>,
    pub(super) finish: Option<FinishFile>,
    pub(super) end_without_finish: Option<bool>,
    pub(super) stall: Option<bool>,
    pub(super) delay_ms: Option<u64>,
    pub(super) chunk_chars: Option<u32>,
}

/// A text many times over.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepeatFile {
    pub(super) text: String,
    pub(super) times: usize,
}

/// A tool call.
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
    pub(super) kind: ErrorKind,
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) code: String,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) times: Option<u32>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorKind {
    Auth,
    RateLimited,
    Timeout,
    Overloaded,
    BadRequest,
    TooLong,
    Broken,
}

/// The end of the answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishFile {
    pub(super) reason: Option<ReasonFile>,
    /// Absent: estimated; null: none reported.
    #[serde(default, deserialize_with = "present")]
    pub(super) usage: Option<Option<UsageFile>>,
}

/// The reasons to stop.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReasonFile {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
    Refusal,
}

/// Reported tokens.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UsageFile {
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) reasoning: u32,
    pub(super) cache_read: u32,
    pub(super) cache_write: u32,
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    /// The texts.
    pub(super) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

impl ErrorKind {
    /// In the words of the provider layer.
    pub(super) fn into_kind(self) -> Kind {
        match self {
            Self::Auth => Kind::Auth,
            Self::RateLimited => Kind::RateLimited,
            Self::Timeout => Kind::Timeout,
            Self::Overloaded => Kind::Overloaded,
            Self::BadRequest => Kind::BadRequest,
            Self::TooLong => Kind::TooLong,
            Self::Broken => Kind::Broken,
        }
    }

    /// The message of a failure that has none.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Auth => "the credentials were refused",
            Self::RateLimited => "too many requests",
            Self::Timeout => "no answer in time",
            Self::Overloaded => "overloaded",
            Self::BadRequest => "the request was refused",
            Self::TooLong => "the prompt is too long",
            Self::Broken => "the connection broke off",
        }
    }
}

impl ReasonFile {
    /// In the words of the model layer.
    pub(super) fn into_reason(self) -> FinishReason {
        match self {
            Self::Stop => FinishReason::Stop,
            Self::ToolCalls => FinishReason::ToolCalls,
            Self::Length => FinishReason::Length,
            Self::ContentFilter => FinishReason::ContentFilter,
            Self::Refusal => FinishReason::Refusal,
        }
    }
}

impl UsageFile {
    /// In the words of the model layer.
    pub(super) fn into_usage(self) -> Usage {
        let Self {
            input,
            output,
            reasoning,
            cache_read,
            cache_write,
        } = self;
        Usage {
            input,
            output,
            reasoning,
            cache_read,
            cache_write,
            provider_json: String::new(),
        }
    }
}

/// Tells a field that is null from one that is absent.
fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<UsageFile>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The window of a script that names none, in tokens.
fn default_context_window() -> u32 {
    16_000
}

/// The output limit of a script that names none, in tokens.
fn default_max_output() -> u32 {
    4_096
}

/// Scripts can call tools unless they say otherwise.
fn yes() -> bool {
    true
}
