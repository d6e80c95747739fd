//! A bounded map by session that keeps the most recently written values.

use std::collections::HashMap;

use crate::model::SessionKey;

/// Values are written to the newer generation. When it is full, it replaces the older one, whose values are dropped.
#[derive(Debug)]
pub(super) struct Generations<V> {
    newer: HashMap<SessionKey, (V, usize)>,
    /// Total weight of the newer generation.
    weight: usize,
    older: HashMap<SessionKey, (V, usize)>,
    /// Maximum weight of each generation. A single value may exceed it.
    most: usize,
}

impl<V> Generations<V> {
    /// Creates an empty map whose generations may each have this weight.
    pub(super) fn new(most: usize) -> Self {
        Self { newer: HashMap::new(), weight: 0, older: HashMap::new(), most }
    }

    /// Returns the value of a session, if it is kept.
    pub(super) fn get(&self, key: &SessionKey) -> Option<&V> {
        let kept = self.newer.get(key).or_else(|| self.older.get(key));
        kept.map(|(value, _)| value)
    }

    /// Drops the values that were not written since the previous call.
    pub(super) fn age(&mut self) {
        self.older = std::mem::take(&mut self.newer);
        self.weight = 0;
    }

    /// Stores a value, replacing the previous value of the session.
    pub(super) fn keep(&mut self, key: &SessionKey, value: V, weight: usize) {
        self.take(key);
        self.weight += weight;
        if self.weight > self.most {
            self.age();
            self.weight = weight;
        }
        self.newer.insert(key.clone(), (value, weight));
    }

    /// Removes and returns the value of a session.
    pub(super) fn take(&mut self, key: &SessionKey) -> Option<V> {
        let newer = self.newer.remove(key);
        if let Some((_, weight)) = &newer {
            self.weight -= weight;
        }
        let older = self.older.remove(key);
        newer.or(older).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    fn key(n: usize) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(format!("s{n}")))
    }

    #[test]
    fn what_was_written_last_is_kept_and_no_more_than_two_generations() {
        let mut kept = Generations::new(10);
        for n in 0..30 {
            kept.keep(&key(n), n, 1);
        }
        assert_eq!(kept.get(&key(29)), Some(&29));
        assert_eq!(kept.get(&key(10)), Some(&10), "the older generation");
        assert_eq!(kept.get(&key(0)), None, "more than is kept");
        assert!(kept.newer.len() <= 10 && kept.older.len() <= 10);
        assert_eq!(kept.take(&key(29)), Some(29));
        assert_eq!(kept.take(&key(29)), None);
    }

    #[test]
    fn what_was_not_written_twice_in_a_row_is_dropped() {
        let mut kept = Generations::new(10);
        kept.keep(&key(1), 1, 1);
        kept.keep(&key(2), 2, 1);
        kept.age();
        kept.keep(&key(2), 3, 1);
        assert_eq!([1, 2].map(|n| kept.get(&key(n)).copied()), [Some(1), Some(3)]);
        kept.age();
        assert_eq!([1, 2].map(|n| kept.get(&key(n)).copied()), [None, Some(3)]);
        kept.age();
        assert_eq!(kept.get(&key(2)), None);
        assert_eq!(kept.weight, 0);
    }

    #[test]
    fn a_session_counts_once_with_its_last_weight() {
        let mut kept = Generations::new(5_000);
        for n in 0..100 {
            kept.keep(&key(n % 3), n, 1_001);
        }
        assert!((0..3).all(|n| kept.get(&key(n)).is_some()), "written again");
        for n in 3..20 {
            kept.keep(&key(n), n, 1_001);
        }
        assert_eq!((kept.newer.len(), kept.older.len()), (4, 4));
        assert_eq!(kept.weight, 4 * 1_001);
    }
}
