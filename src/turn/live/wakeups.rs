//! Wake-ups: what one replica did that another one is waiting for. The first goes out at once and
//! those of the next few milliseconds together, in transactions of their own; what is heard makes a
//! replica look at once where it would have looked a moment later anyway.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use tokio::sync::Notify;

use crate::model::{SessionId, SessionKey, TenantId};

/// Wake-ups that wait to go out; what is beyond them is found by looking.
const MOST: usize = 10_000;

/// What another replica may be waiting for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wakeup {
    /// A session has new events.
    News(SessionKey),
    /// Its turn is to be cancelled, or was taken away from its owner.
    Cancel(SessionKey),
    /// A message in it asks for a turn.
    Start(SessionKey),
    /// Its turn was handed over, to whoever comes first.
    HandOver(SessionKey),
    /// A replica has readers of the session, whose turn runs on another one: its text is to be
    /// shared.
    Follow(SessionKey),
}

/// Wake-ups that are to be sent.
#[derive(Debug, Default)]
pub struct Wakeups {
    pub(super) due: Mutex<BTreeSet<Wakeup>>,
    pub(super) bell: Notify,
    pub(super) listening: AtomicBool,
}

impl Wakeups {
    pub(super) fn add(&self, wakeup: Wakeup) {
        let mut due = self.due();
        if due.len() < MOST && due.insert(wakeup) {
            self.bell.notify_one();
        }
    }

    /// What is due, as this replica writes it.
    pub(super) fn take(&self, replica: &str) -> Vec<String> {
        std::mem::take(&mut *self.due())
            .iter()
            .map(|wakeup| wakeup.write(replica))
            .collect()
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<Wakeup>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wake-up as it was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) wakeup: Wakeup,
    /// The replica that sent it. `None` if it is of a version that does not say.
    pub(super) from: Option<String>,
}

impl Wakeup {
    /// As it goes through the database: its kind, the tenant, the session and the replica that
    /// sends it, separated by spaces. Fields may be added at the end; older versions read the
    /// first three.
    pub(super) fn write(&self, replica: &str) -> String {
        let (kind, key) = match self {
            Self::News(key) => ("news", key),
            Self::Cancel(key) => ("cancel", key),
            Self::Start(key) => ("start", key),
            Self::HandOver(key) => ("hand-over", key),
            Self::Follow(key) => ("follow", key),
        };
        format!(
            "{kind} {} {} {}",
            escape(key.tenant.as_str()),
            escape(key.session.as_str()),
            escape(replica)
        )
    }
}

impl Heard {
    /// What was heard. Returns `None` if it is of a version to come.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let tenant = words.next()?;
        let session = words.next()?;
        let key = SessionKey::new(
            TenantId::new(unescape(tenant)),
            SessionId::new(unescape(session)),
        );
        let wakeup = match kind {
            "news" => Wakeup::News(key),
            "cancel" => Wakeup::Cancel(key),
            "start" => Wakeup::Start(key),
            "hand-over" => Wakeup::HandOver(key),
            "follow" => Wakeup::Follow(key),
            _ => return None,
        };
        Some(Self {
            wakeup,
            from: words.next().map(unescape),
        })
    }
}

/// An id without spaces, which separate the fields of a wake-up.
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
        for (tenant, session) in [
            ("t", "a.b:c-d"),
            ("two words", " s "),
            ("100%", "%20"),
            ("%%2520 ", "a\u{a0}b"),
        ] {
            let key = SessionKey::new(TenantId::new(tenant), SessionId::new(session));
            for wakeup in [
                Wakeup::News(key.clone()),
                Wakeup::Cancel(key.clone()),
                Wakeup::Start(key.clone()),
                Wakeup::HandOver(key.clone()),
                Wakeup::Follow(key.clone()),
            ] {
                let heard = Heard {
                    wakeup: wakeup.clone(),
                    from: Some("replica 1".to_owned()),
                };
                assert_eq!(Heard::read(&wakeup.write("replica 1")), Some(heard));
            }
        }
    }

    #[test]
    fn wakeups_of_the_previous_version_are_read_and_future_ones_ignored() {
        let news = Heard {
            wakeup: Wakeup::News(key("s")),
            from: None,
        };
        assert_eq!(Heard::read("news t s"), Some(news));
        let news = Heard {
            wakeup: Wakeup::News(key("s")),
            from: Some("r".to_owned()),
        };
        assert_eq!(Heard::read("news t s r more"), Some(news));
        for told in ["", "news", "news t", "sing t s"] {
            assert_eq!(Heard::read(told), None, "{told:?}");
        }
        // The version before reads the first three words.
        assert!(Wakeup::News(key("s")).write("r").starts_with("news t s "));
    }

    #[test]
    fn equal_wakeups_are_sent_once() {
        let wakeups = Wakeups::default();
        for _ in 0..3 {
            wakeups.add(Wakeup::News(key("s")));
        }
        wakeups.add(Wakeup::Cancel(key("s")));
        assert_eq!(wakeups.take("r"), ["news t s r", "cancel t s r"]);
        assert_eq!(wakeups.take("r"), Vec::<String>::new());
    }
}
