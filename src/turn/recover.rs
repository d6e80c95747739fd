//! What keeps turns alive: the heartbeat, and taking over what nobody owns any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Engine, Error, hub::Channel, wakeups::Wakeup};
use crate::{
    model::SessionKey,
    store::{
        self,
        lease::{Candidate, Followed, Held, Interruption},
        session::SessionState,
    },
};

/// Turns that are taken over in one round.
const ROUND: u32 = 32;

impl Engine {
    /// Renews the leases of the turns that run here.
    pub async fn beat(&self) -> Result<(), Error> {
        let (held, sent) = (self.leases.held(), Instant::now());
        if !held.is_empty() {
            let pulses = self.store.beat(&held).await?;
            self.leases.take_in(sent, &held, &pulses);
        }
        Ok(())
    }

    /// How long a turn goes on here without a renewal: less than the lease, so that no two owners ever speak.
    pub fn trust(&self) -> Duration {
        self.store.lease() * 4 / 5
    }

    /// Stops the turns whose leases were not renewed in time by this replica's own clock, whatever the database does meanwhile.
    pub fn expire(&self) {
        self.leases.expire(self.trust(), Instant::now());
    }

    /// Asks whether anybody wants a turn cancelled that runs here, or has taken it away.
    pub async fn look_for_cancels(&self) -> Result<(), Error> {
        self.look_for_cancels_in(self.leases.held()).await
    }

    /// The same for the turns of these sessions.
    pub(super) async fn look_for_cancels_of(&self, sessions: &BTreeSet<SessionKey>) -> Result<(), Error> {
        let held = self.leases.held().into_iter().filter(|held| sessions.contains(&held.key));
        self.look_for_cancels_in(held.collect()).await
    }

    async fn look_for_cancels_in(&self, held: Vec<Held>) -> Result<(), Error> {
        if held.is_empty() {
            return Ok(());
        }
        let mut lost = BTreeSet::new();
        for (Held { key, epoch }, why) in self.store.cancels(&held).await? {
            match why {
                Interruption::Cancelled => self.leases.cancel(&key, epoch),
                Interruption::Lost => {
                    self.leases.lose(&key, epoch);
                    lost.insert(key);
                }
            }
        }
        // Whoever took a turn away wrote events, or deleted its session.
        self.look_for_news_of(&lost).await
    }

    /// Asks for news of the sessions that are followed here, and which of their turns run elsewhere.
    pub async fn look_for_news(&self) -> Result<(), Error> {
        let channels = self.hub.channels();
        channels.iter().for_each(|channel| channel.tidy());
        self.look_for_news_in(channels).await
    }

    /// The same of these sessions, as far as they are followed here.
    pub(super) async fn look_for_news_of(&self, sessions: &BTreeSet<SessionKey>) -> Result<(), Error> {
        self.look_for_news_in(sessions.iter().filter_map(|key| self.hub.get(key)).collect()).await
    }

    async fn look_for_news_in(&self, channels: Vec<Arc<Channel>>) -> Result<(), Error> {
        let followed: Vec<Followed> =
            channels.iter().map(|channel| Followed { key: channel.key().clone(), after: channel.seq() }).collect();
        if followed.is_empty() {
            return Ok(());
        }
        let heads = self.store.heads(&followed).await?;
        let heads: BTreeMap<_, _> = heads.into_iter().map(|(key, seq, state)| (key, (seq, state))).collect();
        for channel in channels {
            let head = heads.get(channel.key());
            let running = head.is_some_and(|(_, state)| *state == SessionState::Running);
            channel.set_elsewhere(running && !self.leases.runs(channel.key()));
            if channel.is_elsewhere() && channel.has_readers() {
                self.wake(Wakeup::Follow(channel.key().clone()));
            }
            if let Some((seq, state)) = head {
                channel.advance(*seq);
                if *state == SessionState::Deleted {
                    channel.end();
                }
            }
        }
        Ok(())
    }

    /// Heeds an answer to a statement that may grant a turn. When it was lost the turn may be this replica's without its knowing.
    pub(super) fn heed<T>(&self, key: &SessionKey, answer: Result<T, store::Error>) -> Result<T, store::Error> {
        if matches!(&answer, Err(store::Error::Unavailable(_))) {
            self.leases.doubt(key, Instant::now());
        }
        answer
    }

    /// Hands over the turns that were granted to this replica without its knowing, rather than to let their leases run out.
    async fn let_go(&self) -> Result<(), Error> {
        for key in self.leases.doubts(self.store.lease(), Instant::now()) {
            if self.store.let_go(&key, self.leases.epoch(&key)).await? {
                tracing::info!(session.id = %key.session, "handed a turn over whose grant was lost");
                self.leases.is_clear(&key);
                self.wake(Wakeup::HandOver(key));
            }
        }
        Ok(())
    }

    /// Takes over turns whose owner is gone, and closes calls whose time is up.
    pub async fn take_over(self: &Arc<Self>) -> Result<(), Error> {
        self.let_go().await?;
        for candidate in self.store.candidates(ROUND).await? {
            if self.draining.is_cancelled() || self.leases.count() >= self.rules.max_running {
                break;
            }
            let key = candidate.key.clone();
            if let Err(error) = self.take_over_one(candidate).await {
                tracing::warn!(session.id = %key.session, %error, "a turn could not be taken over");
            }
        }
        Ok(())
    }

    async fn take_over_one(self: &Arc<Self>, candidate: Candidate) -> Result<(), Error> {
        let Candidate { key, epoch, waiting } = candidate;
        if waiting && self.close_overdue(&key).await? {
            return Ok(());
        }
        self.own(key, epoch).await
    }

    async fn own(self: &Arc<Self>, key: SessionKey, epoch: i64) -> Result<(), Error> {
        let sent = Instant::now();
        if let Some(grant) = self.heed(&key, self.store.takeover(&key, epoch).await)? {
            tracing::info!(session.id = %key.session, turn.id = %grant.turn, "took a turn over");
            self.start(key, grant, sent);
        }
        Ok(())
    }
}
