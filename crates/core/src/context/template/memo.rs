//! Caches the counts of tool definitions and system prompts by content: sizes are requested far more often than these
//! change. Cached results are equal to counting again.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{LazyLock, Mutex, PoisonError},
};

use super::Terms;

/// Entries per generation. There are two generations with entries of 232 bytes: about 3.6 MiB when full.
const ENTRIES: usize = 8_192;

static MEMO: LazyLock<Memo> = LazyLock::new(Memo::default);

/// The cached count of this content, or the result of `count`, which is then cached.
pub(super) fn terms(content: &impl Hash, count: impl FnOnce() -> Terms) -> Terms {
    let key = MEMO.keys.hash_one(content);
    if let Some(known) = MEMO.get(key) {
        return known;
    }
    // Not under the lock, because counting a large definition takes milliseconds.
    let counted = count();
    MEMO.put(key, counted);
    counted
}

/// Whether the content is cached.
pub(super) fn knows(content: &impl Hash) -> bool {
    MEMO.get(MEMO.keys.hash_one(content)).is_some()
}

#[derive(Debug, Default)]
struct Memo {
    /// Random per process, so that no caller can construct contents that collide.
    keys: RandomState,
    generations: Mutex<Generations>,
}

/// An entry that is used moves to the newer generation. When that is full, the older generation is dropped.
#[derive(Debug, Default)]
struct Generations {
    newer: BTreeMap<u64, Terms>,
    older: BTreeMap<u64, Terms>,
}

impl Memo {
    fn get(&self, key: u64) -> Option<Terms> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = generations.newer.get(&key) {
            return Some(*known);
        }
        let known = generations.older.remove(&key)?;
        generations.insert(key, known);
        Some(known)
    }

    fn put(&self, key: u64, terms: Terms) {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner).insert(key, terms);
    }
}

impl Generations {
    fn insert(&mut self, key: u64, terms: Terms) {
        if self.newer.len() >= ENTRIES {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, terms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::template::Term;

    #[test]
    fn memo_counts_equal_content_once() {
        let mut counted = 0;
        for (content, expected) in [("memo a", 1.0), ("memo a", 1.0), ("memo b", 2.0), ("memo a", 1.0)] {
            let found = terms(&content, || {
                counted += 1;
                Terms::some(Term::Text, f64::from(counted))
            });
            assert_eq!(found.get(Term::Text), expected, "{content}");
        }
        assert!(knows(&"memo a") && !knows(&"memo c"));
    }

    #[test]
    fn entries_in_use_survive_and_the_memo_stays_within_its_bound() {
        let memo = Memo::default();
        for key in 0..5 * ENTRIES as u64 {
            memo.put(key, Terms::some(Term::Text, key as f64));
            assert!(memo.get(0).is_some(), "asked for again and again, at {key}");
        }
        let generations = memo.generations.lock().unwrap();
        assert!(generations.newer.len() <= ENTRIES && generations.older.len() <= ENTRIES);
        drop(generations);
        assert!(memo.get(1).is_none(), "it was not asked for");
    }
}
