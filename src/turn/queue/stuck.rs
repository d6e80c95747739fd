//! Sessions whose waiting message could not start a turn.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::model::SessionKey;

/// Sessions with a waiting message that are remembered because it could not start a turn. With one
/// more all are forgotten.
const MOST_STUCK: usize = 1_000;

/// Sessions whose waiting message could not start a turn, for example because its model is no
/// longer configured. They are looked at again and again, and logged once.
#[derive(Debug, Default)]
pub(in crate::turn) struct Stuck(Mutex<BTreeSet<SessionKey>>);

impl Stuck {
    /// Notes one; whether it was not known before.
    pub(in crate::turn) fn is_news(&self, key: &SessionKey) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_STUCK && !known.contains(key) {
            known.clear();
        }
        known.insert(key.clone())
    }

    pub(in crate::turn) fn forget(&self, key: &SessionKey) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    #[test]
    fn a_stuck_session_is_reported_once_until_its_message_starts_a_turn() {
        let key =
            |n: usize| SessionKey::new(TenantId::new("default"), SessionId::new(n.to_string()));
        let stuck = Stuck::default();
        let mut news = |n| stuck.is_news(&key(n));
        assert_eq!([news(0), news(1), news(0)], [true, true, false]);
        stuck.forget(&key(0));
        assert_eq!([news(0), news(1)], [true, false]);
        assert!((2..MOST_STUCK).all(&mut news));
        assert!(!news(1), "as many are remembered");
        assert_eq!([news(MOST_STUCK), news(1)], [true, true], "and no more");
    }
}
