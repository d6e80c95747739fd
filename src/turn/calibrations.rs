//! The in-memory part of the calibration of token estimates (`context/learn.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::model::{Calibration, TenantId};

/// A tenant and the reference of a model.
pub(in crate::turn) type Subject = (TenantId, String);

/// Most prompts that are counted concurrently. While that many are being counted, further ones are
/// not used.
const MAX_CONCURRENT_COUNTS: usize = 4;

/// How long a read calibration is assumed to be current.
const FRESH: Duration = Duration::from_secs(30);

/// Most read calibrations in memory. Beyond that, all are dropped and read again.
const MAX_CACHED_MODELS: usize = 1_000;

/// What was learnt and not yet written, and what was last read from the database.
#[derive(Debug)]
pub(in crate::turn) struct CalibrationMemory {
    learnt: Mutex<LearntCalibrations>,
    pub(in crate::turn) places: Arc<Semaphore>,
    /// Background counts of prompts.
    pub(super) counts: TaskTracker,
}

/// Number and mean ratio of calls, by tenant and model.
#[derive(Debug, Default)]
struct LearntCalibrations {
    pub(in crate::turn) waiting: BTreeMap<Subject, Calibration>,
    /// Being written to the database.
    pub(in crate::turn) writing: BTreeMap<Subject, Calibration>,
    /// What was read of a model, and when. `None` means the database had no row.
    pub(in crate::turn) read: BTreeMap<Subject, (Option<Calibration>, Instant)>,
    /// Number of completed writes, successful or failed.
    pub(in crate::turn) writes: u64,
}

impl LearntCalibrations {
    pub(in crate::turn) fn of(&self, subject: &Subject) -> Option<Calibration> {
        let waiting = self.waiting.get(subject).copied();
        let writing = self.writing.get(subject).copied();
        writing.map_or(waiting, |first| Some(waiting.map_or(first, |then| first.plus(then))))
    }

    pub(in crate::turn) fn added(&self, subject: &Subject, stored: Option<Calibration>) -> Option<Calibration> {
        let Some(more) = self.of(subject) else {
            return stored;
        };
        Some(stored.map_or_else(|| more.clamped(), |known| known.and(more)))
    }
}

impl Default for CalibrationMemory {
    fn default() -> Self {
        Self {
            learnt: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_CONCURRENT_COUNTS)),
            counts: TaskTracker::new(),
        }
    }
}

impl CalibrationMemory {
    /// Waits until all background counts have ended.
    pub(in crate::turn) async fn counted(&self) {
        self.counts.close();
        self.counts.wait().await;
    }

    pub(in crate::turn) fn note(&self, subject: Subject, predicted: u32, reported: u32) {
        let Some(call) = Calibration::of_call(predicted, reported) else {
            return;
        };
        let mut taught = self.lock();
        let known = taught.waiting.get(&subject).copied();
        let with_it = known.map_or(call, |known| known.plus(call));
        taught.waiting.insert(subject, with_it);
    }

    /// What was learnt of a model and may not be written yet.
    pub(in crate::turn) fn of(&self, subject: &Subject) -> Option<Calibration> {
        self.lock().of(subject)
    }

    /// The stored calibration of a model, combined with what is not yet written. Returns `None` if
    /// there is neither.
    pub(in crate::turn) fn added(&self, subject: &Subject, stored: Option<Calibration>) -> Option<Calibration> {
        self.lock().added(subject, stored)
    }

    /// The calibration of a model from memory, and whether its stored part is fresh.
    pub(in crate::turn) fn known(&self, subject: &Subject) -> (Option<Calibration>, bool) {
        let taught = self.lock();
        let read = taught.read.get(subject);
        let stored = read.and_then(|(stored, _)| *stored);
        (taught.added(subject, stored), read.is_some_and(|(_, at)| at.elapsed() < FRESH))
    }

    /// The number of writes. A value read from the database after this call may be remembered if no
    /// write has completed since.
    pub(in crate::turn) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Remembers the row of a model that was read when this many writes had completed. `None` means
    /// the database has no row.
    pub(in crate::turn) fn remember(&self, subject: &Subject, stored: Option<Calibration>, writes: u64) {
        let mut taught = self.lock();
        if taught.writes != writes {
            return;
        }
        if taught.read.len() >= MAX_CACHED_MODELS && !taught.read.contains_key(subject) {
            taught.read.clear();
        }
        taught.read.insert(subject.clone(), (stored, Instant::now()));
    }

    /// Takes everything that has to be written.
    pub(in crate::turn) fn take(&self) -> BTreeMap<Subject, Calibration> {
        let mut taught = self.lock();
        let waiting = std::mem::take(&mut taught.waiting);
        taught.writing.clone_from(&waiting);
        waiting
    }

    /// Removes what was learnt from calls of these tenants.
    pub(in crate::turn) fn forget(&self, tenants: &BTreeSet<TenantId>) {
        let mut taught = self.lock();
        taught.waiting.retain(|(tenant, _), _| !tenants.contains(tenant));
        taught.read.retain(|(tenant, _), _| !tenants.contains(tenant));
    }

    /// Ends a write: what was taken is written, or lost.
    pub(in crate::turn) fn settle(&self) {
        let mut taught = self.lock();
        for subject in std::mem::take(&mut taught.writing).into_keys() {
            taught.read.remove(&subject);
        }
        taught.writes += 1;
    }

    fn lock(&self) -> MutexGuard<'_, LearntCalibrations> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str) -> Subject {
        (TenantId::new("acme"), model.to_owned())
    }

    #[test]
    fn what_a_tenants_calls_teach_is_no_others_and_is_forgotten_with_it() {
        let memory = CalibrationMemory::default();
        let other = (TenantId::new("other"), "a/b".to_owned());
        memory.note(of("a/b"), 100, 190);
        assert_eq!(memory.of(&other), None);
        memory.note(other.clone(), 100, 100);
        memory.forget(&[TenantId::new("acme")].into());
        assert_eq!(memory.of(&of("a/b")), None);
        assert_eq!(memory.of(&other).map(|known| known.calls), Some(1));
    }

    /// Row A12
    #[test]
    fn calibration_is_averaged_until_it_is_written() {
        let memory = CalibrationMemory::default();
        memory.note(of("a/b"), 100, 110);
        memory.note(of("a/b"), 100, 130);
        memory.note(of("a/b"), 0, 130);
        memory.note(of("a/c"), 10, 10);
        assert_eq!(memory.of(&of("a/c")), Some(Calibration { ratio: 1.0, calls: 1 }));
        assert_eq!(memory.of(&of("a/d")), None);
        let taught = memory.take();
        assert_eq!(taught.keys().collect::<Vec<_>>(), [&of("a/b"), &of("a/c")]);
        assert!((taught[&of("a/b")].ratio - 1.2).abs() < 1e-9);
        assert_eq!(taught[&of("a/b")].calls, 2);
        memory.note(of("a/b"), 100, 180);
        let known = memory.of(&of("a/b")).unwrap();
        assert_eq!(known.calls, 3, "what is being written counts");
        assert!((known.ratio - 1.4).abs() < 1e-9);
        memory.settle();
        assert_eq!(memory.of(&of("a/b")).map(|known| known.calls), Some(1));
        assert_eq!(memory.of(&of("a/c")), None);
        assert_eq!(memory.take().len(), 1);
    }

    #[test]
    fn calibration_is_cached_until_the_model_is_written() {
        let memory = CalibrationMemory::default();
        let stored = Calibration { ratio: 1.5, calls: 50 };
        assert_eq!(memory.known(&of("a/b")), (None, false), "it was never read");
        memory.remember(&of("a/b"), Some(stored), memory.writes());
        memory.remember(&of("a/c"), None, memory.writes());
        assert_eq!(memory.known(&of("a/b")), (Some(stored), true));
        assert_eq!(memory.known(&of("a/c")), (None, true), "that there is nothing is known too");
        memory.note(of("a/b"), 100, 100);
        let learnt = memory.known(&of("a/b")).0.unwrap();
        assert!(learnt.calls == 51 && learnt.ratio < 1.5, "what is learnt is added: {learnt:?}");
        let before = memory.writes();
        drop(memory.take());
        assert_eq!(memory.known(&of("a/b")), (Some(learnt), true), "so is what is being written");
        memory.settle();
        assert_eq!(memory.known(&of("a/b")), (None, false), "the row is another one now");
        assert_eq!(memory.known(&of("a/c")), (None, true));
        memory.remember(&of("a/b"), Some(stored), before);
        assert_eq!(memory.known(&of("a/b")), (None, false), "a read that began before the write may not have seen it");
    }
}
