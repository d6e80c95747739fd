//! What calls teach about the size of prompts: kept in memory as they come, written now and then. A replica that dies forgets
//! what it has not written; there will be other calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

/// Transcripts of more tokens are not read to learn from them: most of them have more bytes than [`MOST_BYTES`].
const MOST_TOKENS: i64 = 64 << 10;

/// Lessons about one model between two writes from which on the report of a call is not worth the reading of its transcript.
const ENOUGH: u32 = 4;

/// What was learnt and not yet written.
#[derive(Debug)]
pub(super) struct Lessons {
    taught: Mutex<Taught>,
    places: Arc<Semaphore>,
}

/// Number and mean ratio of calls, by model.
#[derive(Debug, Default)]
struct Taught {
    waiting: BTreeMap<String, Learnt>,
    /// On its way to the database.
    writing: BTreeMap<String, Learnt>,
}

impl Default for Lessons {
    fn default() -> Self {
        Self { taught: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
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

    /// Whether the report of a call teaches something that is worth the reading of a transcript of so many tokens.
    pub(super) fn is_instructive(&self, model: &Resolved, transcript: i64) -> bool {
        transcript <= MOST_TOKENS && self.lessons.of(&model.reference).is_none_or(|known| known.calls < ENOUGH)
    }

    /// The same while the caller waits, for a call that a host reports. It is written with the others.
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
        Ok(())
    }

    /// What is known of these models, with what this replica has learnt and not yet written; of others nothing yet.
    pub async fn calibrations(&self, models: &[&str]) -> Result<BTreeMap<String, Learnt>, Error> {
        let mut known = self.store.calibrations(models).await?;
        for model in models {
            if let Some(more) = self.lessons.of(model) {
                let sum = known.get(*model).map_or_else(|| more.alone(), |known| known.and(more));
                known.insert((*model).to_owned(), sum);
            }
        }
        Ok(known)
    }

    /// Whether this replica has learnt something of a model that is not yet written.
    pub(super) fn has_lessons(&self, model: &str) -> bool {
        self.lessons.of(model).is_some()
    }

    /// Writes what was learnt since the last time.
    pub async fn keep_lessons(&self) -> Result<(), Error> {
        let taught = self.lessons.take();
        if taught.is_empty() {
            return Ok(());
        }
        let written = self.store.learn(&taught).await;
        self.lessons.settle();
        Ok(written?)
    }
}

impl Lessons {
    fn note(&self, model: String, predicted: u32, reported: u32) {
        if predicted == 0 {
            return;
        }
        let seen = f64::from(reported) / f64::from(predicted);
        let mut taught = self.lock();
        let of_model = taught.waiting.entry(model).or_insert(Learnt { ratio: seen, calls: 0 });
        of_model.calls = of_model.calls.saturating_add(1);
        of_model.ratio += (seen - of_model.ratio) / f64::from(of_model.calls);
    }

    /// What was learnt of a model and may not be written yet.
    fn of(&self, model: &str) -> Option<Learnt> {
        let taught = self.lock();
        let (waiting, writing) = (taught.waiting.get(model).copied(), taught.writing.get(model).copied());
        writing.map_or(waiting, |first| Some(waiting.map_or(first, |then| first.plus(then))))
    }

    /// Everything that waits, to be written.
    fn take(&self) -> BTreeMap<String, Learnt> {
        let mut taught = self.lock();
        let waiting = std::mem::take(&mut taught.waiting);
        taught.writing.clone_from(&waiting);
        waiting
    }

    /// What was taken is written, or lost.
    fn settle(&self) {
        self.lock().writing.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Taught> {
        self.taught.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(lessons.of("a/c"), Some(Learnt { ratio: 1.0, calls: 1 }));
        assert_eq!(lessons.of("a/d"), None);
        let taught = lessons.take();
        assert_eq!(taught.keys().collect::<Vec<_>>(), ["a/b", "a/c"]);
        assert!((taught["a/b"].ratio - 1.2).abs() < 1e-9);
        assert_eq!(taught["a/b"].calls, 2);
        lessons.note("a/b".to_owned(), 100, 180);
        let known = lessons.of("a/b").unwrap();
        assert_eq!(known.calls, 3, "what is being written counts");
        assert!((known.ratio - 1.4).abs() < 1e-9);
        lessons.settle();
        assert_eq!(lessons.of("a/b").map(|known| known.calls), Some(1));
        assert_eq!(lessons.of("a/c"), None);
        assert_eq!(lessons.take().len(), 1);
    }
}
