//! The actions of a step. They are validated when a script is loaded, and rendered for one prompt
//! when it is played.

use std::{collections::BTreeMap, time::Duration};

use super::{
    echo,
    file::{
        ActionFile, CallFile, ErrorFile, FinishFile, ReasonFile, RepeatFile, True, UsageFile, Verb,
    },
    script_context::{Pick, ScriptContext},
    template::Template,
};
use crate::{
    model::{FinishReason, Usage},
    provider::Error,
};

/// Limit on the bytes of the text of one `repeat`.
const MAX_REPEAT_BYTES: usize = 16 * 1024 * 1024;

/// Limit on one delay, in milliseconds.
const MAX_DELAY_MS: u64 = 3_600_000;

/// How a text is split into chunks, and the delay between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pace {
    /// Characters of a chunk. `None` splits at words.
    pub(super) chunk_chars: Option<u32>,
    /// Delay between chunks.
    pub(super) delay: Duration,
}

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Reasoning,
    Refusal,
}

/// An action of a step.
#[derive(Debug)]
pub(super) enum Action {
    Text {
        kind: TextKind,
        text: Template,
        pace: Pace,
    },
    Repeat {
        text: String,
        times: usize,
        pace: Pace,
    },
    Echo {
        pace: Pace,
    },
    Call {
        name: String,
        id: String,
        arguments: Arguments,
        pace: Pace,
    },
    Delay(Duration),
    WaitFor(Template),
    Fail(Failing),
    Finish {
        reason: Option<FinishReason>,
        usage: UsageReport,
    },
    Break,
    Stall,
}

/// The arguments of a tool call.
#[derive(Debug)]
pub(super) enum Arguments {
    /// This text, unchanged.
    Raw(String),
    /// A JSON object with templates in its strings.
    Json(Template),
}

/// A failure, and how often it occurs.
#[derive(Debug)]
pub(super) struct Failing {
    file: ErrorFile,
}

/// The usage to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UsageReport {
    /// Estimated from the prompt and the response.
    Estimated,
    /// The given usage, or none.
    Fixed(Option<Usage>),
}

/// An action rendered for one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RenderedAction {
    Text {
        kind: TextKind,
        text: String,
        pace: Pace,
    },
    Call {
        name: String,
        id: String,
        arguments: String,
        pace: Pace,
    },
    Delay(Duration),
    WaitFor(String),
    Fail(Error),
    Finish {
        reason: Option<FinishReason>,
        usage: UsageReport,
    },
    Break,
    Stall,
}

impl Pace {
    /// Validates the two fields. A missing one is taken from `below`. An error names the field.
    pub(super) fn check(
        delay_ms: Option<u64>,
        chunk_chars: Option<u32>,
        below: Self,
    ) -> Result<Self, (&'static str, &'static str)> {
        if chunk_chars == Some(0) {
            return Err(("chunk_chars", "must be above 0"));
        }
        let delay = delay_ms
            .map(delay)
            .transpose()
            .map_err(|message| ("delay_ms", message))?;
        Ok(Self {
            chunk_chars: chunk_chars.or(below.chunk_chars),
            delay: delay.unwrap_or(below.delay),
        })
    }
}

impl Action {
    /// Validates an action from a file. A pace is allowed only for an action that streams.
    pub(super) fn check(
        file: ActionFile,
        below: Pace,
        picks: &BTreeMap<String, Pick>,
    ) -> Result<Self, String> {
        let ActionFile {
            verb,
            delay_ms,
            chunk_chars,
        } = file;
        let pace = Pace::check(delay_ms, chunk_chars, below)
            .map_err(|(field, message)| format!("{field} {message}"))?;
        let Some(verb) = verb else {
            return if delay_ms.is_some() && chunk_chars.is_none() {
                Ok(Self::Delay(pace.delay))
            } else {
                Err("an action must have one verb, such as text or tool_call".to_owned())
            };
        };
        let is_paced = delay_ms.is_some() || chunk_chars.is_some();
        if is_paced && !verb.streams() {
            return Err(
                "delay_ms and chunk_chars are allowed only for actions that stream".to_owned(),
            );
        }
        let say = |voice, text: &str| {
            Ok(Self::Text {
                kind: voice,
                text: Template::parse(text, picks)?,
                pace,
            })
        };
        match verb {
            Verb::Text(text) => say(TextKind::Text, &text),
            Verb::Reasoning(text) => say(TextKind::Reasoning, &text),
            Verb::Refusal(text) => say(TextKind::Refusal, &text),
            Verb::Repeat(repeat) => Self::check_repeat(repeat, pace),
            Verb::EchoPrompt(True) => Ok(Self::Echo { pace }),
            Verb::ToolCall(call) => Self::check_call(call, pace, picks),
            Verb::WaitFor(name) => Ok(Self::WaitFor(Template::parse(&name, picks)?)),
            Verb::Error(file) => Ok(Self::Fail(Failing { file })),
            Verb::Finish(finish) => Ok(Self::check_finish(finish)),
            Verb::EndWithoutFinish(True) => Ok(Self::Break),
            Verb::Stall(True) => Ok(Self::Stall),
        }
    }

    /// Whether no action can follow.
    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Finish { .. } | Self::Break | Self::Stall => true,
            Self::Fail(failing) => failing.file.times.is_none(),
            Self::Text { .. }
            | Self::Repeat { .. }
            | Self::Echo { .. }
            | Self::Call { .. }
            | Self::Delay(_)
            | Self::WaitFor(_) => false,
        }
    }

    /// Renders the action for a prompt. Returns `None` if it does nothing this time. `earlier` is
    /// the number of prompts that the step answered before.
    pub(super) fn render(
        &self,
        context: &ScriptContext<'_>,
        earlier: u32,
        provider: &str,
    ) -> Option<RenderedAction> {
        let act = match self {
            Self::Text {
                kind: voice,
                text,
                pace,
            } => RenderedAction::Text {
                kind: *voice,
                text: text.render(context),
                pace: *pace,
            },
            Self::Repeat { text, times, pace } => RenderedAction::Text {
                kind: TextKind::Text,
                text: text.repeat(*times),
                pace: *pace,
            },
            Self::Echo { pace } => RenderedAction::Text {
                kind: TextKind::Text,
                text: echo::json(context.prompt),
                pace: *pace,
            },
            Self::Call {
                name,
                id,
                arguments,
                pace,
            } => RenderedAction::Call {
                name: name.clone(),
                id: id.clone(),
                arguments: arguments.render(context),
                pace: *pace,
            },
            Self::Delay(delay) => RenderedAction::Delay(*delay),
            Self::WaitFor(name) => RenderedAction::WaitFor(name.render(context)),
            Self::Fail(failing) => RenderedAction::Fail(failing.error(earlier, provider)?),
            Self::Finish { reason, usage } => RenderedAction::Finish {
                reason: *reason,
                usage: usage.clone(),
            },
            Self::Break => RenderedAction::Break,
            Self::Stall => RenderedAction::Stall,
        };
        Some(act)
    }

    /// Validates a repeated text, including its total length.
    fn check_repeat(repeat: RepeatFile, pace: Pace) -> Result<Self, String> {
        let RepeatFile { text, times } = repeat;
        match text.len().checked_mul(times) {
            Some(0..=MAX_REPEAT_BYTES) => Ok(Self::Repeat { text, times, pace }),
            Some(_) | None => Err(format!("repeat is larger than {MAX_REPEAT_BYTES} bytes")),
        }
    }

    /// Validates a tool call, which has at most one kind of arguments.
    fn check_call(
        call: CallFile,
        pace: Pace,
        picks: &BTreeMap<String, Pick>,
    ) -> Result<Self, String> {
        let CallFile {
            name,
            id,
            arguments,
            raw_arguments,
        } = call;
        if name.is_empty() {
            return Err("tool_call.name must not be empty".to_owned());
        }
        let arguments = match (arguments, raw_arguments) {
            (Some(_), Some(_)) => {
                return Err("tool_call must not have both arguments and raw_arguments".to_owned());
            }
            (Some(object), None) => Arguments::Json(Template::parse(
                &serde_json::Value::Object(object).to_string(),
                picks,
            )?),
            (None, raw) => Arguments::Raw(raw.unwrap_or_default()),
        };
        Ok(Self::Call {
            name,
            id,
            arguments,
            pace,
        })
    }

    /// Converts a finish action from a file.
    fn check_finish(finish: FinishFile) -> Self {
        let FinishFile { reason, usage } = finish;
        let usage = usage.map_or(UsageReport::Estimated, |given| {
            UsageReport::Fixed(given.map(UsageFile::into_usage))
        });
        Self::Finish {
            reason: reason.map(ReasonFile::into_reason),
            usage,
        }
    }
}

impl Arguments {
    /// Renders the arguments for a prompt.
    fn render(&self, context: &ScriptContext<'_>) -> String {
        match self {
            Self::Raw(text) => text.clone(),
            Self::Json(template) => template.render_json(context),
        }
    }
}

impl Failing {
    /// The failure. Returns `None` once it has occurred the configured number of times.
    fn error(&self, earlier: u32, provider: &str) -> Option<Error> {
        let ErrorFile {
            kind,
            message,
            status,
            code,
            retry_after_ms,
            times,
        } = &self.file;
        let happens = times.is_none_or(|times| earlier < times);
        happens.then(|| Error {
            kind: kind.into_kind(),
            provider: provider.to_owned(),
            message: message.clone().unwrap_or_else(|| kind.words().to_owned()),
            status: *status,
            code: code.clone(),
            request_id: String::new(),
            retry_after: retry_after_ms.map(Duration::from_millis),
            should_retry: None,
        })
    }
}

impl Verb {
    /// Whether the output is streamed in chunks.
    fn streams(&self) -> bool {
        match self {
            Self::Text(_)
            | Self::Reasoning(_)
            | Self::Refusal(_)
            | Self::Repeat(_)
            | Self::EchoPrompt(True)
            | Self::ToolCall(_) => true,
            Self::WaitFor(_)
            | Self::Error(_)
            | Self::Finish(_)
            | Self::EndWithoutFinish(True)
            | Self::Stall(True) => false,
        }
    }
}

/// Validates a delay.
fn delay(milliseconds: u64) -> Result<Duration, &'static str> {
    if milliseconds > MAX_DELAY_MS {
        Err("must be at most 3,600,000")
    } else {
        Ok(Duration::from_millis(milliseconds))
    }
}
