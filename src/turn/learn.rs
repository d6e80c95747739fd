//! What calls teach about the size of prompts: kept in memory as they come, written now and then. A replica that dies forgets
//! what it has not written; there will be other calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Semaphore;

use super::{Engine, Error, count::template, reasoning};
use crate::{
    model::{Content, Prompt},
    provider::registry::Resolved,
    store::calibration::Learnt,
};

/// Longer prompts teach nothing: counting them takes longer than they are worth.
const MOST_BYTES: usize = 256 << 10;

/// Prompts that are counted at once. What comes when all are taken teaches nothing.
const AT_ONCE: usize = 4;

/// What was learnt and not yet written.
#[derive(Debug)]
pub(super) struct Lessons {
    by_model: Mutex<BTreeMap<String, Learnt>>,
    places: Arc<Semaphore>,
}

impl Default for Lessons {
    fn default() -> Self {
        Self { by_model: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Engine {
    /// Compares a prompt's prediction with what was reported, aside from the turn.
    pub(super) fn learn(self: &Arc<Self>, model: &Resolved, prompt: Arc<Prompt>, reported: u32) {
        if !teaches(&prompt, reported) {
            return;
        }
        let Ok(place) = Arc::clone(&self.lessons.places).try_acquire_owned() else { return };
        let (engine, model) = (Arc::clone(self), model.clone());
        self.tasks.spawn_blocking(move || {
            let (predicted, reference) = (predicted(&model, &prompt), model.reference);
            engine.lessons.note(reference, predicted, reported);
            drop(place);
        });
    }

    /// The same, and written at once: for a call that somebody reports and waits for.
    pub(super) async fn learn_now(&self, model: &Resolved, prompt: Prompt, reported: u32) -> Result<(), Error> {
        if !teaches(&prompt, reported) {
            return Ok(());
        }
        let Ok(place) = Arc::clone(&self.lessons.places).acquire_owned().await else { return Ok(()) };
        let asked = model.clone();
        let predicted = tokio::task::spawn_blocking(move || predicted(&asked, &prompt)).await;
        drop(place);
        let predicted = predicted.map_err(|error| Error::Internal(format!("counting failed: {error}")))?;
        self.lessons.note(model.reference.clone(), predicted, reported);
        self.keep_lessons().await
    }

    /// Writes what was learnt since the last time.
    pub async fn keep_lessons(&self) -> Result<(), Error> {
        let taught = self.lessons.take();
        if taught.is_empty() {
            return Ok(());
        }
        Ok(self.store.learn(&taught).await?)
    }
}

impl Lessons {
    fn note(&self, model: String, predicted: u32, reported: u32) {
        if predicted == 0 {
            return;
        }
        let seen = f64::from(reported) / f64::from(predicted);
        let mut taught = self.by_model.lock().unwrap_or_else(PoisonError::into_inner);
        let of_model = taught.entry(model).or_insert(Learnt { ratio: seen, calls: 0 });
        of_model.calls = of_model.calls.saturating_add(1);
        of_model.ratio += (seen - of_model.ratio) / f64::from(of_model.calls);
    }

    fn take(&self) -> BTreeMap<String, Learnt> {
        std::mem::take(&mut *self.by_model.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is predicted for a prompt as it is sent.
fn predicted(model: &Resolved, prompt: &Prompt) -> u32 {
    let Prompt { system, tools, generation, transcript, .. } = prompt;
    let messages = reasoning::as_sent(model, transcript.messages());
    let template = template(model);
    template.count(&template.terms_of(system, tools, &messages, generation)).tokens
}

/// Whether there is something to learn from a prompt. What media cost is known far less well than text: it would spoil the ratio of
/// both.
fn teaches(prompt: &Prompt, reported: u32) -> bool {
    let shows = || prompt.transcript.messages().iter().any(|message| message.media().next().is_some());
    reported > 0 && bytes(prompt) <= MOST_BYTES && !shows()
}

/// The text of a prompt in bytes.
fn bytes(prompt: &Prompt) -> usize {
    let parts = prompt.transcript.messages().iter().flat_map(|message| &message.parts);
    let said = parts.map(|stored| match &stored.part.content {
        Content::Text(text) | Content::Refusal(text) | Content::Reasoning { text, redacted: _ } => text.len(),
        Content::Media(_) => 0,
        Content::ToolCall(call) => call.name.len() + call.arguments.len(),
        Content::ToolResult(result) => result.texts().map(str::len).sum(),
    });
    let tools =
        prompt.tools.iter().map(|tool| tool.description.len() + tool.input_schema.as_deref().map_or(0, str::len));
    prompt.system.len() + said.chain(tools).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row A12
    #[test]
    fn lessons_are_kept_as_a_mean_until_they_are_taken() {
        let lessons = Lessons::default();
        lessons.note("a/b".to_owned(), 100, 110);
        lessons.note("a/b".to_owned(), 100, 130);
        lessons.note("a/b".to_owned(), 0, 130);
        lessons.note("a/c".to_owned(), 10, 10);
        let taught = lessons.take();
        assert_eq!(taught.keys().collect::<Vec<_>>(), ["a/b", "a/c"]);
        assert!((taught["a/b"].ratio - 1.2).abs() < 1e-9);
        assert_eq!(taught["a/b"].calls, 2);
        assert!(lessons.take().is_empty());
    }
}
