//! Wake-ups: notify other replicas of a change that they may be waiting for. The first is sent
//! immediately, and those of the next few milliseconds together, each time in a separate
//! transaction. A wake-up makes a replica look immediately for what it would otherwise find by
//! polling.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use tokio::sync::Notify;

use crate::model::{SessionId, SessionKey, TenantId};

/// Most wake-ups that wait to be sent. Others are dropped; polling covers them.
const MAX_PENDING_WAKEUPS: usize = 10_000;

/// A change that another replica may be waiting for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wakeup {
    /// A session has new events.
    NewEvents(SessionKey),
    /// The session's turn should be cancelled, or was taken over.
    Cancel(SessionKey),
    /// The session has a queued message that starts a turn.
    Start(SessionKey),
    /// The session's turn was handed over, to the first replica that takes it.
    HandOver(SessionKey),
    /// A replica has readers of the session, whose turn runs on another one. The owner has to share
    /// its text.
    Follow(SessionKey),
}

/// Wake-ups to be sent.
#[derive(Debug, Default)]
pub struct Wakeups {
    pub(in crate::turn) due: Mutex<BTreeSet<Wakeup>>,
    pub(in crate::turn) bell: Notify,
    pub(in crate::turn) listening: AtomicBool,
}

impl Wakeups {
    pub(in crate::turn) fn add(&self, wakeup: Wakeup) {
        let mut due = self.due();
        if due.len() < MAX_PENDING_WAKEUPS && due.insert(wakeup) {
            self.bell.notify_one();
        }
    }

    /// Takes the queued wake-ups, encoded for sending.
    pub(in crate::turn) fn take(&self, replica: &str) -> Vec<String> {
        std::mem::take(&mut *self.due()).iter().map(|wakeup| wakeup.write(replica)).collect()
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<Wakeup>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A received wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::turn) struct ReceivedWakeup {
    pub(in crate::turn) wakeup: Wakeup,
    /// The sending replica. `None` for versions that do not send it.
    pub(in crate::turn) from: Option<String>,
}

impl Wakeup {
    /// The payload of the notification: kind, tenant, session and sending replica, separated by
    /// spaces. Fields may be added at the end; older versions read the first three.
    pub(in crate::turn) fn write(&self, replica: &str) -> String {
        let (kind, key) = match self {
            Self::NewEvents(key) => ("news", key),
            Self::Cancel(key) => ("cancel", key),
            Self::Start(key) => ("start", key),
            Self::HandOver(key) => ("hand-over", key),
            Self::Follow(key) => ("follow", key),
        };
        format!("{kind} {} {} {}", escape(key.tenant.as_str()), escape(key.session.as_str()), escape(replica))
    }
}

impl ReceivedWakeup {
    /// Parses a payload. Returns `None` if it is malformed or from a later version.
    pub(in crate::turn) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let tenant = words.next()?;
        let session = words.next()?;
        let key = SessionKey::new(TenantId::new(unescape(tenant)), SessionId::new(unescape(session)));
        let wakeup = match kind {
            "news" => Wakeup::NewEvents(key),
            "cancel" => Wakeup::Cancel(key),
            "start" => Wakeup::Start(key),
            "hand-over" => Wakeup::HandOver(key),
            "follow" => Wakeup::Follow(key),
            _ => return None,
        };
        Some(Self { wakeup, from: words.next().map(unescape) })
    }
}

/// Escapes the spaces of an id, since spaces separate the fields of a wake-up.
fn escape(id: &str) -> String {
    id.replace('%', "%25").replace(' ', "%20")
}

fn unescape(id: &str) -> String {
    id.replace("%20", " ").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(session: &str) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(session))
    }

    #[test]
    fn a_wakeup_round_trips_with_any_ids() {
        for (tenant, session) in [("t", "a.b:c-d"), ("two words", " s "), ("100%", "%20"), ("%%2520 ", "a\u{a0}b")] {
            let key = SessionKey::new(TenantId::new(tenant), SessionId::new(session));
            for wakeup in [
                Wakeup::NewEvents(key.clone()),
                Wakeup::Cancel(key.clone()),
                Wakeup::Start(key.clone()),
                Wakeup::HandOver(key.clone()),
                Wakeup::Follow(key.clone()),
            ] {
                let heard = ReceivedWakeup { wakeup: wakeup.clone(), from: Some("replica 1".to_owned()) };
                assert_eq!(ReceivedWakeup::read(&wakeup.write("replica 1")), Some(heard));
            }
        }
    }

    #[test]
    fn wakeups_of_the_previous_version_are_read_and_future_ones_ignored() {
        let news = ReceivedWakeup { wakeup: Wakeup::NewEvents(key("s")), from: None };
        assert_eq!(ReceivedWakeup::read("news t s"), Some(news));
        let news = ReceivedWakeup { wakeup: Wakeup::NewEvents(key("s")), from: Some("r".to_owned()) };
        assert_eq!(ReceivedWakeup::read("news t s r more"), Some(news));
        for told in ["", "news", "news t", "sing t s"] {
            assert_eq!(ReceivedWakeup::read(told), None, "{told:?}");
        }
        // The previous version reads the first three fields.
        assert!(Wakeup::NewEvents(key("s")).write("r").starts_with("news t s "));
    }

    #[test]
    fn equal_wakeups_are_sent_once() {
        let wakeups = Wakeups::default();
        for _ in 0..3 {
            wakeups.add(Wakeup::NewEvents(key("s")));
        }
        wakeups.add(Wakeup::Cancel(key("s")));
        assert_eq!(wakeups.take("r"), ["news t s r", "cancel t s r"]);
        assert_eq!(wakeups.take("r"), Vec::<String>::new());
    }
}
