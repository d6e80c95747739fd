//! What calls teach about the size of prompts: kept in memory as they come, written now and then. A replica that dies forgets
//! what it has not written; there will be other calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
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

/// How long what was read of a model is taken for what the database holds now.
const FRESH: Duration = Duration::from_secs(30);

/// Models of which what was read is kept at once; when there are more, all are read again.
const MOST_MODELS: usize = 1_000;

/// What was learnt and not yet written, and what the database was last known to hold.
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
    /// What was read of a model, and when; none: the database had nothing.
    read: BTreeMap<String, (Option<Learnt>, Instant)>,
    /// Writes that have ended, well or not.
    writes: u64,
}

impl Taught {
    fn of(&self, model: &str) -> Option<Learnt> {
        let (waiting, writing) = (self.waiting.get(model).copied(), self.writing.get(model).copied());
        writing.map_or(waiting, |first| Some(waiting.map_or(first, |then| first.plus(then))))
    }

    fn added(&self, model: &str, stored: Option<Learnt>) -> Option<Learnt> {
        let Some(more) = self.of(model) else { return stored };
        Some(stored.map_or_else(|| more.alone(), |known| known.and(more)))
    }
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

    /// What is known of these models: what the database holds, with what this replica has learnt and not yet written; of others nothing yet.
    pub async fn calibrations(&self, models: &[&str]) -> Result<BTreeMap<String, Learnt>, Error> {
        let writes = self.lessons.writes();
        let mut stored = self.store.calibrations(models).await?;
        let known = models.iter().filter_map(|model| {
            let stored = stored.remove(*model);
            self.lessons.remember(model, stored, writes);
            self.lessons.added(model, stored).map(|known| ((*model).to_owned(), known))
        });
        Ok(known.collect())
    }

    /// The ratio of a model as [`Engine::calibrations`] has it, for each call of the model: from memory, where what was read is at most
    /// 30 s old. Where the database gives no answer it is what memory has, or 1: it is only shown.
    pub(super) async fn ratio(&self, reference: &str) -> f64 {
        let ratio = |known: Option<Learnt>| known.map_or(1.0, |known| known.ratio);
        let (known, is_fresh) = self.lessons.known(reference);
        if is_fresh {
            return ratio(known);
        }
        match self.calibration(reference).await {
            Ok(learnt) => learnt.ratio,
            Err(error) => {
                tracing::debug!(model = reference, %error, "calibration ratio not read");
                ratio(known)
            }
        }
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
        self.lock().of(model)
    }

    /// What is known of a model whose row is `stored`, with what is not yet written; none: nothing.
    fn added(&self, model: &str, stored: Option<Learnt>) -> Option<Learnt> {
        self.lock().added(model, stored)
    }

    /// What memory has of a model, and whether the part of it that was read is fresh.
    fn known(&self, model: &str) -> (Option<Learnt>, bool) {
        let taught = self.lock();
        let read = taught.read.get(model);
        let stored = read.and_then(|(stored, _)| *stored);
        (taught.added(model, stored), read.is_some_and(|(_, at)| at.elapsed() < FRESH))
    }

    /// How many writes there were. What is read from now on may be remembered unless there is another one meanwhile.
    fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Remembers what was read of a model after so many writes; none: the database has nothing.
    fn remember(&self, model: &str, stored: Option<Learnt>, writes: u64) {
        let mut taught = self.lock();
        if taught.writes != writes {
            return;
        }
        if taught.read.len() >= MOST_MODELS && !taught.read.contains_key(model) {
            taught.read.clear();
        }
        taught.read.insert(model.to_owned(), (stored, Instant::now()));
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
        let mut taught = self.lock();
        for model in std::mem::take(&mut taught.writing).into_keys() {
            taught.read.remove(&model);
        }
        taught.writes += 1;
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
    let mut terms = template.terms_of(system, tools, &messages, generation);
    terms.add(&template.terms_of_arrangement(&model.provider.arrangement(system, &messages)));
    template.count(&terms).tokens
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

    #[test]
    fn what_was_read_is_remembered_until_the_model_is_written() {
        let (lessons, stored) = (Lessons::default(), Learnt { ratio: 1.5, calls: 50 });
        assert_eq!(lessons.known("a/b"), (None, false), "it was never read");
        lessons.remember("a/b", Some(stored), lessons.writes());
        lessons.remember("a/c", None, lessons.writes());
        assert_eq!(lessons.known("a/b"), (Some(stored), true));
        assert_eq!(lessons.known("a/c"), (None, true), "that there is nothing is known too");
        lessons.note("a/b".to_owned(), 100, 100);
        let learnt = lessons.known("a/b").0.unwrap();
        assert!(learnt.calls == 51 && learnt.ratio < 1.5, "what is learnt is added: {learnt:?}");
        let before = lessons.writes();
        drop(lessons.take());
        assert_eq!(lessons.known("a/b"), (Some(learnt), true), "so is what is being written");
        lessons.settle();
        assert_eq!(lessons.known("a/b"), (None, false), "the row is another one now");
        assert_eq!(lessons.known("a/c"), (None, true));
        lessons.remember("a/b", Some(stored), before);
        assert_eq!(lessons.known("a/b"), (None, false), "a read that began before the write may not have seen it");
    }
}
