//! The actions of a step. They are validated when a script is loaded, and rendered for one prompt
//! when it is played.

use std::{collections::BTreeMap, time::Duration};

use super::{
    echo,
    file::{ActionFile, CallFile, ErrorFile, FinishFile, ReasonFile, RepeatFile, True, Verb},
    script_context::{Pick, ScriptContext},
    template::Template,
};
use crate::{
    model::{FinishReason, Usage},
    provider::{Error, chunk::TextKind},
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

/// An action of a step.
#[derive(Debug)]
pub(super) enum Action<Text = Source, Name = Template, Failure = ErrorFile> {
    /// Streams a text, or a call with its arguments.
    Stream {
        output: Output,
        text: Text,
        pace: Pace,
    },
    Delay(Duration),
    WaitFor(Name),
    Fail(Failure),
    Finish {
        reason: Option<FinishReason>,
        usage: UsageReport,
    },
    Break,
    Stall,
}

/// An action rendered for one prompt.
pub(super) type RenderedAction = Action<String, String, Error>;

/// What a streamed text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Output {
    Text(TextKind),
    /// The arguments of a tool call.
    Call {
        name: String,
        id: String,
    },
}

/// Where a streamed text comes from.
#[derive(Debug)]
pub(super) enum Source {
    Template(Template),
    /// A JSON object with templates in its strings.
    Json(Template),
    /// This text, unchanged.
    Raw(String),
    /// This text, this many times.
    Repeat(String, usize),
    /// The prompt as JSON.
    Echo,
}

/// The usage to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UsageReport {
    /// Estimated from the prompt and the response.
    Estimated,
    /// The given usage, or none.
    Fixed(Option<Usage>),
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
        let delay = delay_ms.map(delay).transpose().map_err(|message| ("delay_ms", message))?;
        Ok(Self { chunk_chars: chunk_chars.or(below.chunk_chars), delay: delay.unwrap_or(below.delay) })
    }
}

impl Action {
    /// Validates an action from a file. A pace is allowed only for an action that streams.
    pub(super) fn check(file: ActionFile, below: Pace, picks: &BTreeMap<String, Pick>) -> Result<Self, String> {
        let ActionFile { verb, delay_ms, chunk_chars } = file;
        let pace =
            Pace::check(delay_ms, chunk_chars, below).map_err(|(field, message)| format!("{field} {message}"))?;
        let Some(verb) = verb else {
            return if delay_ms.is_some() && chunk_chars.is_none() {
                Ok(Self::Delay(pace.delay))
            } else {
                Err("an action must have one verb, such as text or tool_call".to_owned())
            };
        };
        let stream = |(output, text)| Self::Stream { output, text, pace };
        let say = |kind, text: &str| -> Result<_, String> {
            Ok((Output::Text(kind), Source::Template(Template::parse(text, picks)?)))
        };
        let action = match verb {
            Verb::Text(text) => stream(say(TextKind::Text, &text)?),
            Verb::Reasoning(text) => stream(say(TextKind::Reasoning, &text)?),
            Verb::Refusal(text) => stream(say(TextKind::Refusal, &text)?),
            Verb::Repeat(repeat) => stream(check_repeat(repeat)?),
            Verb::EchoPrompt(True) => stream((Output::Text(TextKind::Text), Source::Echo)),
            Verb::ToolCall(call) => stream(check_call(call, picks)?),
            Verb::WaitFor(name) => Self::WaitFor(Template::parse(&name, picks)?),
            Verb::Error(file) => Self::Fail(file),
            Verb::Finish(FinishFile { reason, usage }) => Self::Finish {
                reason: reason.map(ReasonFile::into_reason),
                usage: usage.map_or(UsageReport::Estimated, UsageReport::Fixed),
            },
            Verb::EndWithoutFinish(True) => Self::Break,
            Verb::Stall(True) => Self::Stall,
        };
        let is_paced = delay_ms.is_some() || chunk_chars.is_some();
        if is_paced && !matches!(action, Self::Stream { .. }) {
            return Err("delay_ms and chunk_chars are allowed only for actions that stream".to_owned());
        }
        Ok(action)
    }

    /// Whether no action can follow.
    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Finish { .. } | Self::Break | Self::Stall => true,
            Self::Fail(file) => file.times.is_none(),
            Self::Stream { .. } | Self::Delay(_) | Self::WaitFor(_) => false,
        }
    }

    /// Renders the action for a prompt. Returns `None` if it does nothing this time. `earlier` is
    /// the number of prompts that the step answered before.
    pub(super) fn render(&self, context: &ScriptContext<'_>, earlier: u32, provider: &str) -> Option<RenderedAction> {
        let act = match self {
            Self::Stream { output, text, pace } => {
                RenderedAction::Stream { output: output.clone(), text: text.render(context), pace: *pace }
            }
            Self::Delay(delay) => RenderedAction::Delay(*delay),
            Self::WaitFor(name) => RenderedAction::WaitFor(name.render(context)),
            Self::Fail(file) => RenderedAction::Fail(file.error(earlier, provider)?),
            Self::Finish { reason, usage } => RenderedAction::Finish { reason: *reason, usage: usage.clone() },
            Self::Break => RenderedAction::Break,
            Self::Stall => RenderedAction::Stall,
        };
        Some(act)
    }
}

/// Validates a repeated text, including its total length.
fn check_repeat(RepeatFile { text, times }: RepeatFile) -> Result<(Output, Source), String> {
    match text.len().checked_mul(times) {
        Some(0..=MAX_REPEAT_BYTES) => {
            let repeated = Source::Repeat(text, times);
            Ok((Output::Text(TextKind::Text), repeated))
        }
        Some(_) | None => Err(format!("repeat is larger than {MAX_REPEAT_BYTES} bytes")),
    }
}

/// Validates a tool call, which has at most one kind of arguments.
fn check_call(call: CallFile, picks: &BTreeMap<String, Pick>) -> Result<(Output, Source), String> {
    let CallFile { name, id, arguments, raw_arguments } = call;
    if name.is_empty() {
        return Err("tool_call.name must not be empty".to_owned());
    }
    let arguments = match (arguments, raw_arguments) {
        (Some(_), Some(_)) => {
            return Err("tool_call must not have both arguments and raw_arguments".to_owned());
        }
        (Some(object), None) => {
            let json = serde_json::Value::Object(object).to_string();
            Source::Json(Template::parse(&json, picks)?)
        }
        (None, raw) => Source::Raw(raw.unwrap_or_default()),
    };
    Ok((Output::Call { name, id }, arguments))
}

impl Source {
    /// Renders the text for a prompt.
    fn render(&self, context: &ScriptContext<'_>) -> String {
        match self {
            Self::Template(template) => template.render(context),
            Self::Json(template) => template.render_json(context),
            Self::Raw(text) => text.clone(),
            Self::Repeat(text, times) => text.repeat(*times),
            Self::Echo => echo::json(context.prompt),
        }
    }
}

impl ErrorFile {
    /// The failure. Returns `None` once it has occurred the configured number of times.
    fn error(&self, earlier: u32, provider: &str) -> Option<Error> {
        let happens = self.times.is_none_or(|times| earlier < times);
        happens.then(|| Error {
            status: self.status,
            code: self.code.clone(),
            retry_after: self.retry_after_ms.map(Duration::from_millis),
            ..Error::new(self.kind, provider, self.message())
        })
    }
}

/// Validates a delay.
fn delay(milliseconds: u64) -> Result<Duration, &'static str> {
    if milliseconds > MAX_DELAY_MS { Err("must be at most 3,600,000") } else { Ok(Duration::from_millis(milliseconds)) }
}
