//! A validated script: its steps and their conditions.

use std::{collections::BTreeMap, sync::atomic::AtomicU32};

use super::{
    action::{Action, Pace},
    file::{ActionFile, PickFile, ScriptFile, StepFile, WhenFile},
    script_context::{Pick, ScriptContext},
};
use crate::provider::{
    ModelInfo,
    info::{Limit, Source},
};

#[derive(Debug)]
pub(super) struct Script {
    /// The model that the script provides.
    pub(super) info: ModelInfo,
    /// Lists of words to pick from, by name.
    pub(super) picks: BTreeMap<String, Pick>,
    /// The steps. The first one whose conditions hold answers a prompt.
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) when: Conditions,
    /// The actions, in order.
    pub(super) actions: Vec<Action>,
    /// Number of prompts that the step answered in this process.
    pub(super) prompts_answered: AtomicU32,
}

/// Conditions, all of which must hold. Of a list of texts to search for, one must be found; of a
/// list of tools or types, all must match.
#[derive(Debug)]
pub(super) struct Conditions {
    call: Option<usize>,
    user_contains: Vec<String>,
    system_contains: Vec<String>,
    offers: Vec<String>,
    has_result_of: Vec<String>,
    user_shows: Vec<String>,
}

/// A validation error of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    /// The field, e.g. `steps[1].say[0]`.
    pub(super) field: String,
    /// A human-readable description.
    pub(super) message: String,
}

impl Flaw {
    pub(super) fn at(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl Script {
    /// Validates a script file.
    pub(super) fn check(name: &str, file: ScriptFile) -> Result<Self, Flaw> {
        let ScriptFile {
            display_name,
            context_window,
            max_output,
            tools,
            input_media_types,
            delay_ms,
            chunk_chars,
            picks,
            steps,
        } = file;
        if max_output == 0 || max_output > context_window {
            return Err(Flaw::at(
                "max_output",
                "must be above 0 and at most context_window",
            ));
        }
        if steps.is_empty() {
            return Err(Flaw::at("steps", "must not be empty"));
        }
        let pace = Pace::check(delay_ms, chunk_chars, Pace::default())
            .map_err(|(field, message)| Flaw::at(field, message))?;
        let picks = picks
            .into_iter()
            .map(check_pick)
            .collect::<Result<_, _>>()?;
        let steps = steps.into_iter().enumerate();
        let steps = steps
            .map(|(at, step)| Step::check(at, step, pace, &picks))
            .collect::<Result<_, _>>()?;
        let limit = |tokens| Some(Limit::new(tokens, Source::Configured));
        let info = ModelInfo {
            display_name: display_name.unwrap_or_else(|| name.to_owned()),
            context_window: limit(context_window),
            max_output: limit(max_output),
            input_media: input_media_types,
            supports_tools: tools,
            supports_parallel_tools: tools.then_some(true),
            source: Source::Configured,
            ..ModelInfo::unknown(name)
        };
        Ok(Self { info, picks, steps })
    }
}

impl Step {
    /// Validates one step.
    fn check(
        at: usize,
        step: StepFile,
        pace: Pace,
        picks: &BTreeMap<String, Pick>,
    ) -> Result<Self, Flaw> {
        let StepFile { when, say } = step;
        let when = Conditions::check(when)
            .map_err(|message| Flaw::at(format!("steps[{at}].when"), message))?;
        let mut actions: Vec<Action> = Vec::with_capacity(say.len());
        for (number, action) in say.into_iter().enumerate() {
            let field = format!("steps[{at}].say[{number}]");
            if actions.last().is_some_and(Action::ends) {
                return Err(Flaw::at(
                    field,
                    "is never reached: the response has already ended",
                ));
            }
            actions.push(
                ActionFile::read(action)
                    .and_then(|file| Action::check(file, pace, picks))
                    .map_err(|message| Flaw::at(field, message))?,
            );
        }
        Ok(Self {
            when,
            actions,
            prompts_answered: AtomicU32::new(0),
        })
    }
}

impl Conditions {
    /// Validates the conditions.
    fn check(file: WhenFile) -> Result<Self, &'static str> {
        let WhenFile {
            call,
            user_contains,
            system_contains,
            offers,
            has_result_of,
            user_shows,
            otherwise,
        } = file;
        let when = Self {
            call,
            user_contains: lowercase(user_contains.into_vec()),
            system_contains: lowercase(system_contains.into_vec()),
            offers: offers.into_vec(),
            has_result_of: has_result_of.into_vec(),
            user_shows: user_shows.into_vec(),
        };
        if otherwise && !when.is_empty() {
            Err("otherwise must be the only condition")
        } else {
            Ok(when)
        }
    }

    /// Whether the conditions hold for every prompt.
    fn is_empty(&self) -> bool {
        let Self {
            call,
            user_contains,
            system_contains,
            offers,
            has_result_of,
            user_shows,
        } = self;
        call.is_none()
            && [
                user_contains,
                system_contains,
                offers,
                has_result_of,
                user_shows,
            ]
            .iter()
            .all(|list| list.is_empty())
    }

    /// Whether the conditions hold for this prompt.
    pub(super) fn holds(&self, context: &ScriptContext<'_>) -> bool {
        let Self {
            call,
            user_contains,
            system_contains,
            offers,
            has_result_of,
            user_shows,
        } = self;
        call.is_none_or(|call| call == context.call)
            && contains_any(&context.user_text, user_contains)
            && contains_any(&context.prompt.instructions(), system_contains)
            && offers.iter().all(|tool| context.offers(tool))
            && has_result_of
                .iter()
                .all(|tool| context.tools_with_results.contains(tool.as_str()))
            && user_shows.iter().all(|pattern| context.shows(pattern))
    }
}

/// Validates one pick.
fn check_pick((name, file): (String, PickFile)) -> Result<(String, Pick), Flaw> {
    let PickFile { from, default } = file;
    if matches!(name.as_str(), "user" | "call")
        || name.contains([':', '{', '}'])
        || name.trim() != name
        || name.is_empty()
    {
        return Err(Flaw::at(
            format!("picks.{name}"),
            "is not a valid pick name",
        ));
    }
    if from.iter().any(String::is_empty) {
        return Err(Flaw::at(
            format!("picks.{name}.from"),
            "must not contain an empty word",
        ));
    }
    Ok((name, Pick { from, default }))
}

/// Whether the text contains one of the words, which are in lower case. Returns true if `words` is
/// empty.
fn contains_any(text: &str, words: &[String]) -> bool {
    words.is_empty() || {
        let text = text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    }
}

fn lowercase(words: Vec<String>) -> Vec<String> {
    words.into_iter().map(|word| word.to_lowercase()).collect()
}
