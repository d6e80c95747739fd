//! Wake-ups: what one replica did that another one is waiting for. The first goes out at once and those of the next few milliseconds
//! together, in transactions of their own; what is heard makes a replica look at once where it would have looked a moment later anyway.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{Engine, Error};
use crate::{
    model::{SessionId, SessionKey, TenantId},
    store::listen::Listener,
};

/// How long wake-ups are gathered after some went out, so that a replica tells a hundred times a second at most.
const GATHER: Duration = Duration::from_millis(10);
/// How long what is heard is gathered before it is looked at, from the first on: others may never fall silent.
const LISTEN: Duration = Duration::from_millis(2);
/// How long to wait before listening again, when that failed.
const PAUSE: Duration = Duration::from_secs(1);
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
    /// A replica has readers of the session, whose turn runs on another one: its text is to be shared.
    Follow(SessionKey),
}

/// What is to be told.
#[derive(Debug, Default)]
pub struct Wakeups {
    due: Mutex<BTreeSet<Wakeup>>,
    bell: Notify,
    listening: AtomicBool,
}

impl Wakeups {
    fn add(&self, wakeup: Wakeup) {
        let mut due = self.due();
        if due.len() < MOST && due.insert(wakeup) {
            self.bell.notify_one();
        }
    }

    /// What is due, as this replica writes it.
    fn take(&self, replica: &str) -> Vec<String> {
        std::mem::take(&mut *self.due()).iter().map(|wakeup| wakeup.write(replica)).collect()
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<Wakeup>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wake-up as it was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    wakeup: Wakeup,
    /// The replica that sent it. `None` if it is of a version that does not say.
    from: Option<String>,
}

impl Wakeup {
    /// As it goes through the database: its kind, the tenant, the session and the replica that sends it, separated by spaces. Fields
    /// may be added at the end; older versions read the first three.
    fn write(&self, replica: &str) -> String {
        let (kind, key) = match self {
            Self::News(key) => ("news", key),
            Self::Cancel(key) => ("cancel", key),
            Self::Start(key) => ("start", key),
            Self::HandOver(key) => ("hand-over", key),
            Self::Follow(key) => ("follow", key),
        };
        format!("{kind} {} {} {}", escape(key.tenant.as_str()), escape(key.session.as_str()), escape(replica))
    }
}

impl Heard {
    /// What was heard. Returns `None` if it is of a version to come.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (kind, tenant, session) = (words.next()?, words.next()?, words.next()?);
        let key = SessionKey::new(TenantId::new(unescape(tenant)), SessionId::new(unescape(session)));
        let wakeup = match kind {
            "news" => Wakeup::News(key),
            "cancel" => Wakeup::Cancel(key),
            "start" => Wakeup::Start(key),
            "hand-over" => Wakeup::HandOver(key),
            "follow" => Wakeup::Follow(key),
            _ => return None,
        };
        Some(Self { wakeup, from: words.next().map(unescape) })
    }
}

/// An id without spaces, which separate the fields of a wake-up.
fn escape(id: &str) -> String {
    id.replace('%', "%25").replace(' ', "%20")
}

fn unescape(id: &str) -> String {
    id.replace("%20", " ").replace("%25", "%")
}

/// What a replica looks at after it heard something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Look {
    /// Sessions that are followed here and have new events.
    news: BTreeSet<SessionKey>,
    /// Sessions whose turns run here and are to stop.
    cancels: BTreeSet<SessionKey>,
    queues: bool,
    orphans: bool,
    /// Sessions whose turns run here and whose text is wanted elsewhere, as was not known before.
    followed: bool,
}

impl Engine {
    /// Tells other replicas, if there may be any.
    pub(super) fn wake(&self, wakeup: Wakeup) {
        if self.rules.share_interval.is_some() {
            self.wakeups.add(wakeup);
        }
    }

    /// Whether wake-ups of other replicas reach this one.
    pub fn hears_wakeups(&self) -> bool {
        self.wakeups.listening.load(Ordering::Relaxed)
    }

    /// Tells what is to be told, until `stop` fires; what is due then is told too.
    pub async fn tell_wakeups(self: Arc<Self>, stop: CancellationToken) {
        let mut last = false;
        while !last {
            last = tokio::select! {
                () = stop.cancelled() => true,
                () = self.wakeups.bell.notified() => false,
            };
            let due = self.wakeups.take(self.store.replica());
            // What is lost is found by looking.
            if !due.is_empty()
                && let Err(error) = self.store.notify(&due).await
            {
                tracing::debug!(%error, "other replicas not notified");
            }
            if !last {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(GATHER) => {}
                }
            }
        }
    }

    /// Hears what others tell, until `stop` fires.
    pub async fn hear_wakeups(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let heard = stop.run_until_cancelled(self.listen()).await;
            self.wakeups.listening.store(false, Ordering::Relaxed);
            self.sharing.hears_nothing();
            match heard {
                None | Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::debug!(%error, "notifications not received; polling instead");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Listens for as long as the connection holds. Ends well only where nothing can be heard.
    async fn listen(self: &Arc<Self>) -> Result<(), Error> {
        let Some(mut listener) = self.store.listen().await? else { return Ok(()) };
        // What was told before was missed: followers of the turns that run here say again that they are there, with the next poll.
        self.sharing.hears_from_now(self.leases.count() > 0, self.follow_lasts());
        self.wakeups.listening.store(true, Ordering::Relaxed);
        self.look_for_news().await?;
        self.look_for_cancels().await?;
        self.look(Look { queues: true, orphans: true, ..Look::default() }).await?;
        loop {
            let look = self.hear(&mut listener).await?;
            self.look(look).await?;
        }
    }

    /// What there is to look at after the next wake-up, and those right behind it.
    async fn hear(&self, listener: &mut Listener) -> Result<Look, Error> {
        let mut look = Look::default();
        self.concerns(&listener.next().await?, &mut look);
        let looked_at = Instant::now() + LISTEN;
        while let Ok(told) = timeout_at(looked_at, listener.next()).await {
            self.concerns(&told?, &mut look);
        }
        Ok(look)
    }

    /// Only what concerns this replica is looked at.
    fn concerns(&self, told: &str, look: &mut Look) {
        let Some(Heard { wakeup, from }) = Heard::read(told) else { return };
        match wakeup {
            // Readers here know at once of what is written here.
            Wakeup::News(key) => {
                let own = from.map_or_else(|| self.leases.runs(&key), |from| from == self.store.replica());
                if !own && self.hub.get(&key).is_some() {
                    look.news.insert(key);
                }
            }
            Wakeup::Cancel(key) => {
                if self.leases.runs(&key) {
                    look.cancels.insert(key);
                }
            }
            Wakeup::Start(_) => look.queues = true,
            Wakeup::HandOver(_) => look.orphans = true,
            Wakeup::Follow(key) => {
                if from.as_deref() != Some(self.store.replica()) {
                    let runs = self.leases.runs(&key);
                    look.followed |= self.sharing.follow(key, self.follow_lasts()) && runs;
                }
            }
        }
    }

    async fn look(self: &Arc<Self>, look: Look) -> Result<(), Error> {
        let Look { news, cancels, queues, orphans, followed } = look;
        if !news.is_empty() {
            self.look_for_news_of(&news).await?;
        }
        if !cancels.is_empty() {
            self.look_for_cancels_of(&cancels).await?;
        }
        if queues {
            self.tend_queues().await?;
        }
        if orphans {
            self.take_over().await?;
        }
        if followed {
            self.hand_out().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(session: &str) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(session))
    }

    #[test]
    fn a_wakeup_is_heard_as_it_was_told_whatever_its_ids_are() {
        for (tenant, session) in [("t", "a.b:c-d"), ("two words", " s "), ("100%", "%20"), ("%%2520 ", "a\u{a0}b")] {
            let key = SessionKey::new(TenantId::new(tenant), SessionId::new(session));
            for wakeup in [
                Wakeup::News(key.clone()),
                Wakeup::Cancel(key.clone()),
                Wakeup::Start(key.clone()),
                Wakeup::HandOver(key.clone()),
                Wakeup::Follow(key.clone()),
            ] {
                let heard = Heard { wakeup: wakeup.clone(), from: Some("replica 1".to_owned()) };
                assert_eq!(Heard::read(&wakeup.write("replica 1")), Some(heard));
            }
        }
    }

    #[test]
    fn wakeups_of_the_version_before_are_heard_and_those_of_versions_to_come_are_not_taken_for_others() {
        let news = Heard { wakeup: Wakeup::News(key("s")), from: None };
        assert_eq!(Heard::read("news t s"), Some(news));
        let news = Heard { wakeup: Wakeup::News(key("s")), from: Some("r".to_owned()) };
        assert_eq!(Heard::read("news t s r more"), Some(news));
        for told in ["", "news", "news t", "sing t s"] {
            assert_eq!(Heard::read(told), None, "{told:?}");
        }
        // The version before reads the first three words.
        assert!(Wakeup::News(key("s")).write("r").starts_with("news t s "));
    }

    #[test]
    fn the_same_wakeup_is_told_once() {
        let wakeups = Wakeups::default();
        for _ in 0..3 {
            wakeups.add(Wakeup::News(key("s")));
        }
        wakeups.add(Wakeup::Cancel(key("s")));
        assert_eq!(wakeups.take("r"), ["news t s r", "cancel t s r"]);
        assert_eq!(wakeups.take("r"), Vec::<String>::new());
    }
}
