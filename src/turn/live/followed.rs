//! The sessions that other replicas follow, as far as this replica has been notified.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::model::SessionKey;

/// Most sessions in memory. Beyond that, every session is assumed to be followed for as long as one
/// more entry would be.
const MAX_FOLLOWED: usize = 10_000;

/// The sessions with readers on other replicas.
#[derive(Debug, Default)]
pub(in crate::turn) struct FollowedSessions {
    reception: Reception,
    until: BTreeMap<SessionKey, Instant>,
}

/// Whether a session without an entry may be followed nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reception {
    /// Notifications do not arrive.
    #[default]
    Disconnected,
    /// Some notifications may have been missed. They are repeated before this time.
    Incomplete(Instant),
    /// All notifications arrive.
    Complete,
}

impl FollowedSessions {
    /// Records that a replica follows the session until `now + lasts`. Returns whether the session
    /// was not known to be followed.
    pub(in crate::turn) fn follow(&mut self, key: SessionKey, lasts: Duration, now: Instant) -> bool {
        if self.until.len() >= MAX_FOLLOWED && !self.until.contains_key(&key) {
            self.remove_expired(now);
            if self.until.len() >= MAX_FOLLOWED {
                self.reception = self.reception.with_missed(now + lasts);
                return true;
            }
        }
        self.until.insert(key, now + lasts).is_none_or(|until| until <= now)
    }

    /// Whether the session may be followed.
    pub(in crate::turn) fn has(&self, key: &SessionKey) -> bool {
        self.reception != Reception::Complete || self.until.contains_key(key)
    }

    /// Removes expired entries.
    pub(in crate::turn) fn remove_expired(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
        if matches!(self.reception, Reception::Incomplete(until) if until <= now) {
            self.reception = Reception::Complete;
        }
    }

    /// Notifications arrive from now on. Those missed before are repeated until `repeated_by`;
    /// `None` means none was missed.
    pub(in crate::turn) fn start_receiving(&mut self, repeated_by: Option<Instant>) {
        self.reception = repeated_by.map_or(Reception::Complete, Reception::Incomplete);
    }

    /// Notifications no longer arrive.
    pub(in crate::turn) fn stop_receiving(&mut self) {
        self.reception = Reception::Disconnected;
    }
}

impl Reception {
    fn with_missed(self, until: Instant) -> Self {
        match self {
            Self::Disconnected => Self::Disconnected,
            Self::Incomplete(before) => Self::Incomplete(before.max(until)),
            Self::Complete => Self::Incomplete(until),
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
        let mut followed = FollowedSessions::default();
        let begun = Instant::now();
        followed.start_receiving(None);
        assert!(!followed.has(&key(1)));
        assert!(followed.follow(key(1), LASTS, begun));
        assert!(!followed.follow(key(1), LASTS, begun + LASTS / 2), "it was known");
        followed.remove_expired(begun + LASTS);
        assert_eq!([followed.has(&key(1)), followed.has(&key(2))], [true, false]);
        followed.remove_expired(begun + LASTS * 3 / 2);
        assert!(!followed.has(&key(1)));
    }

    #[test]
    fn after_missed_notifications_every_session_counts_as_followed() {
        let mut followed = FollowedSessions::default();
        let begun = Instant::now();
        assert!(followed.has(&key(1)), "nothing is heard yet");
        followed.start_receiving(Some(begun + LASTS));
        followed.remove_expired(begun + LASTS / 2);
        assert!(followed.has(&key(1)), "it may be repeated");
        followed.remove_expired(begun + LASTS);
        assert!(!followed.has(&key(1)), "it was not");
        followed.stop_receiving();
        followed.remove_expired(begun + LASTS * 10);
        assert!(followed.has(&key(1)));
    }

    #[test]
    fn more_sessions_than_are_remembered_count_as_followed() {
        let mut followed = FollowedSessions::default();
        let begun = Instant::now();
        followed.start_receiving(None);
        assert!((0..=MAX_FOLLOWED).all(|session| followed.follow(key(session), LASTS, begun)));
        assert!(followed.has(&key(MAX_FOLLOWED)));
        followed.remove_expired(begun + LASTS);
        assert!((0..=MAX_FOLLOWED).all(|session| !followed.has(&key(session))));
    }
}
