//! Wake-ups: what one replica did that another one is waiting for. The first goes out at once and those of the next few milliseconds
//! together, in transactions of their own; what is heard makes a replica look at once where it would have looked a moment later anyway.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

/// What somebody may be waiting for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wakeup {
    /// A session has new events.
    News(SessionKey),
    /// Its turn is to be cancelled.
    Cancel(SessionKey),
    /// A message in it asks for a turn.
    Start(SessionKey),
    /// Its turn was handed over, to whoever comes first.
    HandOver(SessionKey),
}

/// What is to be told.
#[derive(Debug, Default)]
pub struct Wakeups {
    due: Mutex<BTreeSet<Wakeup>>,
    bell: Notify,
}

impl Wakeups {
    fn add(&self, wakeup: Wakeup) {
        let mut due = self.due();
        if due.len() < MOST && due.insert(wakeup) {
            self.bell.notify_one();
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.due()).iter().map(Wakeup::write).collect()
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<Wakeup>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakeup {
    /// As it goes through the database. No id holds a space.
    fn write(&self) -> String {
        let (kind, key) = match self {
            Self::News(key) => ("news", key),
            Self::Cancel(key) => ("cancel", key),
            Self::Start(key) => ("start", key),
            Self::HandOver(key) => ("hand-over", key),
        };
        format!("{kind} {} {}", key.tenant, key.session)
    }

    /// What was heard; none: it is of a version to come.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (kind, tenant, session) = (words.next()?, words.next()?, words.next()?);
        let key = SessionKey::new(TenantId::new(tenant), SessionId::new(session));
        match kind {
            "news" => Some(Self::News(key)),
            "cancel" => Some(Self::Cancel(key)),
            "start" => Some(Self::Start(key)),
            "hand-over" => Some(Self::HandOver(key)),
            _ => None,
        }
    }
}

/// What a replica looks at after it heard something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Look {
    news: bool,
    cancels: bool,
    queues: bool,
    orphans: bool,
}

impl Engine {
    /// Tells other replicas, if there may be any.
    pub(super) fn wake(&self, wakeup: Wakeup) {
        if self.rules.share_interval.is_some() {
            self.wakeups.add(wakeup);
        }
    }

    /// Tells what is to be told, until `stop` fires; what is due then is told too.
    pub async fn tell_wakeups(self: Arc<Self>, stop: CancellationToken) {
        let mut last = false;
        while !last {
            last = tokio::select! {
                () = stop.cancelled() => true,
                () = self.wakeups.bell.notified() => false,
            };
            let due = self.wakeups.take();
            // What is lost is found by looking.
            if !due.is_empty()
                && let Err(error) = self.store.notify(&due).await
            {
                tracing::debug!(%error, "other replicas could not be woken");
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
            tokio::select! {
                () = stop.cancelled() => return,
                heard = self.listen() => match heard {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, "wake-ups are not heard; what they would say is looked for"),
                },
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
        // What was told before is behind us.
        self.look(Look { news: true, cancels: true, queues: true, orphans: true }).await?;
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
        match Wakeup::read(told) {
            Some(Wakeup::News(key)) => look.news |= self.hub.get(&key).is_some() && !self.leases.runs(&key),
            Some(Wakeup::Cancel(key)) => look.cancels |= self.leases.runs(&key),
            Some(Wakeup::Start(_)) => look.queues = true,
            Some(Wakeup::HandOver(_)) => look.orphans = true,
            None => {}
        }
    }

    async fn look(self: &Arc<Self>, look: Look) -> Result<(), Error> {
        if look.news {
            self.look_for_news().await?;
        }
        if look.cancels {
            self.look_for_cancels().await?;
        }
        if look.queues {
            self.tend_queues().await?;
        }
        if look.orphans {
            self.take_over().await?;
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
    fn what_is_told_is_heard_and_what_is_newer_is_not() {
        for wakeup in [
            Wakeup::News(key("a.b:c-d")),
            Wakeup::Cancel(key("s")),
            Wakeup::Start(key("s")),
            Wakeup::HandOver(key("s")),
        ] {
            assert_eq!(Wakeup::read(&wakeup.write()), Some(wakeup));
        }
        for told in ["", "news", "news t", "sing t s"] {
            assert_eq!(Wakeup::read(told), None, "{told:?}");
        }
    }

    #[test]
    fn the_same_wakeup_is_told_once() {
        let wakeups = Wakeups::default();
        for _ in 0..3 {
            wakeups.add(Wakeup::News(key("s")));
        }
        wakeups.add(Wakeup::Cancel(key("s")));
        assert_eq!(wakeups.take(), ["news t s", "cancel t s"]);
        assert_eq!(wakeups.take(), Vec::<String>::new());
    }
}
