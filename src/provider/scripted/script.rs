//! A validated script: its steps and their conditions.

use std::{collections::BTreeMap, sync::atomic::AtomicU32};

use super::{
    action::{Action, Pace},
    file::{ActionFile, Conditions, ScriptFile, StepFile},
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
        Self { field: field.into(), message: message.into() }
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
            let message = "must be above 0 and at most context_window";
            return Err(Flaw::at("max_output", message));
        }
        if steps.is_empty() {
            return Err(Flaw::at("steps", "must not be empty"));
        }
        let pace =
            Pace::check(delay_ms, chunk_chars, Pace::default()).map_err(|(field, message)| Flaw::at(field, message))?;
        let picks = picks.into_iter().map(check_pick);
        let picks = picks.collect::<Result<_, _>>()?;
        let steps = steps.into_iter().enumerate();
        let steps = steps.map(|(at, step)| Step::check(at, step, pace, &picks));
        let steps = steps.collect::<Result<_, _>>()?;
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
    fn check(at: usize, step: StepFile, pace: Pace, picks: &BTreeMap<String, Pick>) -> Result<Self, Flaw> {
        let StepFile { when, say } = step;
        let when = when.check();
        let when = when.map_err(|message| Flaw::at(format!("steps[{at}].when"), message))?;
        let mut actions: Vec<Action> = Vec::with_capacity(say.len());
        for (number, action) in say.into_iter().enumerate() {
            let field = format!("steps[{at}].say[{number}]");
            if actions.last().is_some_and(Action::ends) {
                let message = "is never reached: the response has already ended";
                return Err(Flaw::at(field, message));
            }
            let action = ActionFile::read(action);
            let action = action.and_then(|file| Action::check(file, pace, picks));
            actions.push(action.map_err(|message| Flaw::at(field, message))?);
        }
        Ok(Self { when, actions, prompts_answered: AtomicU32::new(0) })
    }
}

impl Conditions {
    /// Validates the conditions. The texts to search for become lower case.
    fn check(mut self) -> Result<Self, &'static str> {
        let alone = Self { otherwise: true, ..Self::default() };
        if self.otherwise && self != alone {
            return Err("otherwise must be the only condition");
        }
        for words in [&mut self.user_contains, &mut self.system_contains] {
            words.iter_mut().for_each(|word| *word = word.to_lowercase());
        }
        Ok(self)
    }

    /// Whether the conditions hold for this prompt.
    pub(super) fn holds(&self, context: &ScriptContext<'_>) -> bool {
        let has_result = |tool: &String| context.tools_with_results.contains(tool.as_str());
        self.call.is_none_or(|call| call == context.call)
            && contains_any(&context.user_text, &self.user_contains)
            && contains_any(&context.prompt.instructions(), &self.system_contains)
            && self.offers.iter().all(|tool| context.offers(tool))
            && self.has_result_of.iter().all(has_result)
            && self.user_shows.iter().all(|pattern| context.shows(pattern))
    }
}

/// Validates one pick.
fn check_pick((name, pick): (String, Pick)) -> Result<(String, Pick), Flaw> {
    if matches!(name.as_str(), "user" | "call")
        || name.contains([':', '{', '}'])
        || name.trim() != name
        || name.is_empty()
    {
        let field = format!("picks.{name}");
        let message = "must not be empty, user or call, contain ':', '{' or '}', or have surrounding white space";
        return Err(Flaw::at(field, message));
    }
    if pick.from.iter().any(String::is_empty) {
        let field = format!("picks.{name}.from");
        return Err(Flaw::at(field, "must not contain an empty word"));
    }
    Ok((name, pick))
}

/// Whether the text contains one of the words, which are in lower case. Returns true if `words` is
/// empty.
fn contains_any(text: &str, words: &[String]) -> bool {
    words.is_empty() || {
        let text = text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    }
}
