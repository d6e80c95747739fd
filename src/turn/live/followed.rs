//! The sessions that other replicas follow, as far as this replica has been notified.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::model::SessionKey;

/// Most sessions in memory. Beyond that, every session is assumed to be followed for as long as one
/// more entry would be.
const MOST: usize = 10_000;

/// The sessions with readers on other replicas.
#[derive(Debug, Default)]
pub(in crate::turn) struct Followed {
    hearing: Hearing,
    until: BTreeMap<SessionKey, Instant>,
}

/// Whether a session without an entry may be followed nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Hearing {
    /// Notifications do not arrive.
    #[default]
    Nothing,
    /// Some notifications may have been missed. They are repeated before this time.
    MissedSome(Instant),
    /// All notifications arrive.
    Everything,
}

impl Followed {
    /// Records that a replica follows the session until `now + lasts`. Returns whether the session
    /// was not known to be followed.
    pub(in crate::turn) fn follow(
        &mut self,
        key: SessionKey,
        lasts: Duration,
        now: Instant,
    ) -> bool {
        if self.until.len() >= MOST && !self.until.contains_key(&key) {
            self.forget_those_that_left(now);
            if self.until.len() >= MOST {
                self.hearing = self.hearing.missed_some(now + lasts);
                return true;
            }
        }
        self.until
            .insert(key, now + lasts)
            .is_none_or(|until| until <= now)
    }

    /// Whether the session may be followed.
    pub(in crate::turn) fn has(&self, key: &SessionKey) -> bool {
        self.hearing != Hearing::Everything || self.until.contains_key(key)
    }

    /// Removes expired entries.
    pub(in crate::turn) fn forget_those_that_left(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
        if matches!(self.hearing, Hearing::MissedSome(until) if until <= now) {
            self.hearing = Hearing::Everything;
        }
    }

    /// Notifications arrive from now on. Those missed before are repeated until `repeated_by`;
    /// `None` means none was missed.
    pub(in crate::turn) fn hears_from_now(&mut self, repeated_by: Option<Instant>) {
        self.hearing = repeated_by.map_or(Hearing::Everything, Hearing::MissedSome);
    }

    /// Notifications no longer arrive.
    pub(in crate::turn) fn hears_nothing(&mut self) {
        self.hearing = Hearing::Nothing;
    }
}

impl Hearing {
    fn missed_some(self, until: Instant) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::MissedSome(before) => Self::MissedSome(before.max(until)),
            Self::Everything => Self::MissedSome(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    const LASTS: Duration = Duration::from_secs(3);

    fn key(session: usize) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(session.to_string()))
    }

    #[test]
    fn a_session_is_followed_until_its_announcement_is_not_repeated() {
        let mut followed = Followed::default();
        let begun = Instant::now();
        followed.hears_from_now(None);
        assert!(!followed.has(&key(1)));
        assert!(followed.follow(key(1), LASTS, begun));
        assert!(
            !followed.follow(key(1), LASTS, begun + LASTS / 2),
            "it was known"
        );
        followed.forget_those_that_left(begun + LASTS);
        assert_eq!(
            [followed.has(&key(1)), followed.has(&key(2))],
            [true, false]
        );
        followed.forget_those_that_left(begun + LASTS * 3 / 2);
        assert!(!followed.has(&key(1)));
    }

    #[test]
    fn after_missed_notifications_every_session_counts_as_followed() {
        let mut followed = Followed::default();
        let begun = Instant::now();
        assert!(followed.has(&key(1)), "nothing is heard yet");
        followed.hears_from_now(Some(begun + LASTS));
        followed.forget_those_that_left(begun + LASTS / 2);
        assert!(followed.has(&key(1)), "it may be repeated");
        followed.forget_those_that_left(begun + LASTS);
        assert!(!followed.has(&key(1)), "it was not");
        followed.hears_nothing();
        followed.forget_those_that_left(begun + LASTS * 10);
        assert!(followed.has(&key(1)));
    }

    #[test]
    fn more_sessions_than_are_remembered_count_as_followed() {
        let mut followed = Followed::default();
        let begun = Instant::now();
        followed.hears_from_now(None);
        assert!((0..=MOST).all(|session| followed.follow(key(session), LASTS, begun)));
        assert!(followed.has(&key(MOST)));
        followed.forget_those_that_left(begun + LASTS);
        assert!((0..=MOST).all(|session| !followed.has(&key(session))));
    }
}
