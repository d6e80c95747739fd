//! What calls have taught about the size of prompts, in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::model::Calibration;

/// Prompts that are counted at once. What comes when all are taken teaches nothing.
const AT_ONCE: usize = 4;

/// How long what was read of a model is taken for what the database holds now.
const FRESH: Duration = Duration::from_secs(30);

/// Models of which what was read is kept at once; when there are more, all are read again.
const MOST_MODELS: usize = 1_000;

/// What was learnt and not yet written, and what the database was last known to hold.
#[derive(Debug)]
pub(in crate::turn) struct Lessons {
    pub(super) taught: Mutex<Taught>,
    pub(in crate::turn) places: Arc<Semaphore>,
}

/// Number and mean ratio of calls, by model.
#[derive(Debug, Default)]
pub(super) struct Taught {
    pub(in crate::turn) waiting: BTreeMap<String, Calibration>,
    /// On its way to the database.
    pub(in crate::turn) writing: BTreeMap<String, Calibration>,
    /// What was read of a model, and when. `None` means the database had nothing.
    pub(in crate::turn) read: BTreeMap<String, (Option<Calibration>, Instant)>,
    /// Writes that have ended, well or not.
    pub(in crate::turn) writes: u64,
}

impl Taught {
    pub(in crate::turn) fn of(&self, model: &str) -> Option<Calibration> {
        let waiting = self.waiting.get(model).copied();
        let writing = self.writing.get(model).copied();
        writing.map_or(waiting, |first| {
            Some(waiting.map_or(first, |then| first.plus(then)))
        })
    }

    pub(in crate::turn) fn added(
        &self,
        model: &str,
        stored: Option<Calibration>,
    ) -> Option<Calibration> {
        let Some(more) = self.of(model) else {
            return stored;
        };
        Some(stored.map_or_else(|| more.alone(), |known| known.and(more)))
    }
}

impl Default for Lessons {
    fn default() -> Self {
        Self {
            taught: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Lessons {
    pub(in crate::turn) fn note(&self, model: String, predicted: u32, reported: u32) {
        let Some(call) = Calibration::of_call(predicted, reported) else {
            return;
        };
        let mut taught = self.lock();
        let known = taught.waiting.get(&model).copied();
        let with_it = known.map_or(call, |known| known.plus(call));
        taught.waiting.insert(model, with_it);
    }

    /// What was learnt of a model and may not be written yet.
    pub(in crate::turn) fn of(&self, model: &str) -> Option<Calibration> {
        self.lock().of(model)
    }

    /// What is known of a model whose row is `stored`, with what is not yet written. `None` means
    /// nothing.
    pub(in crate::turn) fn added(
        &self,
        model: &str,
        stored: Option<Calibration>,
    ) -> Option<Calibration> {
        self.lock().added(model, stored)
    }

    /// What memory has of a model, and whether the part of it that was read is fresh.
    pub(in crate::turn) fn known(&self, model: &str) -> (Option<Calibration>, bool) {
        let taught = self.lock();
        let read = taught.read.get(model);
        let stored = read.and_then(|(stored, _)| *stored);
        (
            taught.added(model, stored),
            read.is_some_and(|(_, at)| at.elapsed() < FRESH),
        )
    }

    /// How many writes there were. What is read from now on may be remembered unless there is
    /// another one meanwhile.
    pub(in crate::turn) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Remembers what was read of a model after so many writes. `None` means the database has
    /// nothing.
    pub(in crate::turn) fn remember(&self, model: &str, stored: Option<Calibration>, writes: u64) {
        let mut taught = self.lock();
        if taught.writes != writes {
            return;
        }
        if taught.read.len() >= MOST_MODELS && !taught.read.contains_key(model) {
            taught.read.clear();
        }
        taught
            .read
            .insert(model.to_owned(), (stored, Instant::now()));
    }

    /// Everything that waits, to be written.
    pub(in crate::turn) fn take(&self) -> BTreeMap<String, Calibration> {
        let mut taught = self.lock();
        let waiting = std::mem::take(&mut taught.waiting);
        taught.writing.clone_from(&waiting);
        waiting
    }

    /// What was taken is written, or lost.
    pub(in crate::turn) fn settle(&self) {
        let mut taught = self.lock();
        for model in std::mem::take(&mut taught.writing).into_keys() {
            taught.read.remove(&model);
        }
        taught.writes += 1;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Taught> {
        self.taught.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row A12
    #[test]
    fn calibration_is_averaged_until_it_is_written() {
        let lessons = Lessons::default();
        lessons.note("a/b".to_owned(), 100, 110);
        lessons.note("a/b".to_owned(), 100, 130);
        lessons.note("a/b".to_owned(), 0, 130);
        lessons.note("a/c".to_owned(), 10, 10);
        assert_eq!(
            lessons.of("a/c"),
            Some(Calibration {
                ratio: 1.0,
                calls: 1
            })
        );
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
    fn calibration_is_cached_until_the_model_is_written() {
        let lessons = Lessons::default();
        let stored = Calibration {
            ratio: 1.5,
            calls: 50,
        };
        assert_eq!(lessons.known("a/b"), (None, false), "it was never read");
        lessons.remember("a/b", Some(stored), lessons.writes());
        lessons.remember("a/c", None, lessons.writes());
        assert_eq!(lessons.known("a/b"), (Some(stored), true));
        assert_eq!(
            lessons.known("a/c"),
            (None, true),
            "that there is nothing is known too"
        );
        lessons.note("a/b".to_owned(), 100, 100);
        let learnt = lessons.known("a/b").0.unwrap();
        assert!(
            learnt.calls == 51 && learnt.ratio < 1.5,
            "what is learnt is added: {learnt:?}"
        );
        let before = lessons.writes();
        drop(lessons.take());
        assert_eq!(
            lessons.known("a/b"),
            (Some(learnt), true),
            "so is what is being written"
        );
        lessons.settle();
        assert_eq!(
            lessons.known("a/b"),
            (None, false),
            "the row is another one now"
        );
        assert_eq!(lessons.known("a/c"), (None, true));
        lessons.remember("a/b", Some(stored), before);
        assert_eq!(
            lessons.known("a/b"),
            (None, false),
            "a read that began before the write may not have seen it"
        );
    }
}
