//! What keeps turns alive: the heartbeat, and taking over turns without an owner. How many takeovers
//! a turn may need is `turn.max_takeovers`; after that `run/decide.rs` ends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};

use crate::{
    model::{Seq, SessionKey},
    session::SessionState,
    store::{
        grant::Grant,
        lease::{Candidate, Followed, Held, Interruption},
        lost_commits::{Mark, Verdict},
    },
    telemetry::metrics::Takeover,
    turn::{
        Error,
        engine::Engine,
        lease::{leases::Claim, postponed::longest_pause},
        live::{hub::Channel, wakeups::Wakeup},
        run::cause::Cause,
    },
};

/// Turns that are looked for at once.
const PAGE: u32 = 128;
/// How often they are looked for in one round, while there are more.
const PAGES: u32 = 32;
/// Turns that are taken over at the same time.
const AT_ONCE: usize = 8;

impl Engine {
    /// Renews the leases of the turns that run here.
    pub async fn beat(&self) -> Result<(), Error> {
        let held = self.leases.held();
        let sent = Instant::now();
        if !held.is_empty() {
            let pulses = self.store.beat(&held).await?;
            self.leases.take_in(sent, &held, &pulses);
        }
        Ok(())
    }

    /// How long a turn goes on here without a renewal: less than the lease, so that no two owners
    /// ever speak.
    pub fn trust(&self) -> Duration {
        self.store.lease() * 4 / 5
    }

    /// Stops the turns whose leases were not renewed in time by this replica's own clock, whatever
    /// the database does meanwhile.
    pub fn expire(&self) {
        self.leases.expire(self.trust(), Instant::now());
    }

    /// Asks whether anybody wants a turn cancelled that runs here, or has taken it away.
    pub async fn look_for_cancels(&self) -> Result<(), Error> {
        self.look_for_cancels_in(self.leases.held()).await
    }

    /// The same for the turns of these sessions.
    pub(in crate::turn) async fn look_for_cancels_of(
        &self,
        sessions: &BTreeSet<SessionKey>,
    ) -> Result<(), Error> {
        let held = self
            .leases
            .held()
            .into_iter()
            .filter(|held| sessions.contains(&held.key));
        self.look_for_cancels_in(held.collect()).await
    }

    async fn look_for_cancels_in(&self, held: Vec<Held>) -> Result<(), Error> {
        if held.is_empty() {
            return Ok(());
        }
        let mut lost = BTreeSet::new();
        for (Held { key, turn, epoch }, why) in self.store.cancels(&held).await? {
            match why {
                Interruption::Cancelled => self.leases.cancel(&key, &turn, epoch),
                Interruption::Lost => {
                    self.leases.lose(&key, epoch);
                    lost.insert(key);
                }
            }
        }
        // Whoever took a turn away wrote events, or deleted its session.
        self.look_for_news_of(&lost).await
    }

    /// Asks for news of the sessions that are followed here, and which of their turns run
    /// elsewhere.
    pub async fn look_for_news(&self) -> Result<(), Error> {
        let channels = self.hub.channels();
        let now = Instant::now();
        channels.iter().for_each(|channel| channel.tidy(now));
        self.look_for_news_in(channels).await
    }

    /// The same of these sessions, as far as they are followed here.
    pub(in crate::turn) async fn look_for_news_of(
        &self,
        sessions: &BTreeSet<SessionKey>,
    ) -> Result<(), Error> {
        self.look_for_news_in(
            sessions
                .iter()
                .filter_map(|key| self.hub.get(key))
                .collect(),
        )
        .await
    }

    async fn look_for_news_in(&self, channels: Vec<Arc<Channel>>) -> Result<(), Error> {
        let followed: Vec<Followed> = channels
            .iter()
            .map(|channel| Followed {
                key: channel.key().clone(),
                after: channel.seq(),
            })
            .collect();
        if followed.is_empty() {
            return Ok(());
        }
        let heads = self.store.heads(&followed).await?;
        let heads: BTreeMap<_, _> = heads
            .into_iter()
            .map(|(key, seq, state)| (key, (seq, state)))
            .collect();
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

    /// Looks whether the database still has the events that readers here have seen. A failover may
    /// lose the newest ones, and what was read from them on belongs to a history that is no
    /// more: their streams end.
    pub async fn look_for_lost_events(&self) -> Result<(), Error> {
        let asked: Vec<_> = self
            .hub
            .channels()
            .into_iter()
            .map(|channel| (channel.marks(), channel))
            .collect();
        let marks = |(marks, channel): &(Vec<Mark>, Arc<Channel>)| {
            marks
                .iter()
                .map(|mark| (channel.key().clone(), *mark))
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = asked.iter().flat_map(marks).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut found: BTreeMap<SessionKey, Vec<(Seq, Verdict)>> = BTreeMap::new();
        for (key, seq, verdict) in self.store.check_marks(&all).await? {
            found.entry(key).or_default().push((seq, verdict));
        }
        for (marks, channel) in asked {
            let found = found
                .get(channel.key())
                .map(Vec::as_slice)
                .unwrap_or_default();
            if found
                .iter()
                .any(|(_, verdict)| matches!(verdict, Verdict::Lost(_)))
            {
                tracing::error!(session.id = %channel.key().session, "the database lost events that readers have seen");
            }
            channel.compared(&marks, found);
        }
        Ok(())
    }

    /// Looks after the sessions in which this replica may own a turn without knowing it, because
    /// the answer to the statement that granted it was lost, or because it gave the turn up
    /// while the database could not be reached. What never ran here begins; what did is
    /// handed over, since its step has to be repeated as another attempt.
    async fn resolve_uncertain(self: &Arc<Self>) -> Result<(), Error> {
        let keys = self.leases.uncertain(self.store.lease(), Instant::now());
        if keys.is_empty() {
            return Ok(());
        }
        let mut first = Ok(());
        for (key, grant) in self.store.owned_here(&keys).await? {
            let resolved = self.resolve(&key, &grant).await;
            if let Err(error) = &resolved {
                tracing::warn!(session.id = %key.session, turn.id = %grant.turn, %error, "an uncertain grant was not resolved");
            }
            first = first.and(resolved);
        }
        first
    }

    async fn resolve(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        match self.leases.claim(key, &grant.turn, grant.fence.epoch) {
            Claim::Leave => {}
            Claim::Adopt if self.may_start() => self.adopt(key, grant).await?,
            Claim::Adopt | Claim::Release => {
                if self.store.release(key, grant).await? {
                    tracing::info!(session.id = %key.session, turn.id = %grant.turn, "released a turn that does not run here");
                    self.wake(Wakeup::HandOver(key.clone()));
                }
            }
        }
        Ok(())
    }

    async fn adopt(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        let mut request = self.leases.request(key);
        if let Some(grant) = request.answered(self.store.adopt_owned(key, grant).await)? {
            tracing::info!(session.id = %key.session, turn.id = %grant.turn, "adopted a turn whose grant was lost");
            self.start(key.clone(), grant, request.sent(), Cause::GoesOn);
        }
        Ok(())
    }

    /// Takes over turns whose owner is gone, and closes calls whose time is up.
    pub async fn take_over(self: &Arc<Self>) -> Result<(), Error> {
        // A grant that cannot be resolved yet does not hold up the takeovers.
        let resolved = self.resolve_uncertain().await;
        for _ in 0..PAGES {
            if !self.may_start() {
                break;
            }
            let found = self
                .store
                .candidates(PAGE, &self.postponed.at(Instant::now()))
                .await?;
            let more = found.len() == PAGE as usize;
            stream::iter(found)
                .for_each_concurrent(AT_ONCE, |candidate| self.try_take_over(candidate))
                .await;
            if !more {
                break;
            }
        }
        resolved
    }

    async fn try_take_over(self: &Arc<Self>, candidate: Candidate) {
        if !self.may_start() {
            return;
        }
        let key = candidate.key.clone();
        match self.take_over_one(candidate).await {
            Ok(()) => self.postponed.forget(&key),
            Err(error) => self.takeover_failed(&key, &error),
        }
    }

    fn takeover_failed(&self, key: &SessionKey, error: &Error) {
        self.metrics.takeover(Takeover::Failed);
        let pause = longest_pause(error);
        if self.postponed.postpone(key, Instant::now(), pause) {
            tracing::warn!(session.id = %key.session, %error, "turn takeover failed; retrying later");
        } else {
            tracing::debug!(session.id = %key.session, %error, "turn takeover failed again");
        }
    }

    async fn take_over_one(self: &Arc<Self>, candidate: Candidate) -> Result<(), Error> {
        let Candidate {
            key,
            epoch,
            waiting,
        } = candidate;
        if waiting && self.close_overdue(&key).await? {
            return Ok(());
        }
        self.own(key, epoch).await
    }

    async fn own(self: &Arc<Self>, key: SessionKey, epoch: i64) -> Result<(), Error> {
        let mut request = self.leases.request(&key);
        let Some(grant) = request.answered(self.store.takeover(&key, epoch).await)? else {
            self.metrics.takeover(Takeover::Lost);
            return Ok(());
        };
        tracing::info!(session.id = %key.session, turn.id = %grant.turn, "took a turn over");
        self.metrics.takeover(Takeover::Taken);
        self.start(key, grant, request.sent(), Cause::GoesOn);
        Ok(())
    }
}
