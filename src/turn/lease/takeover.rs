//! Heartbeats, and the takeover of turns without an owner. `turn.max_takeovers` limits the
//! takeovers of one turn; `run/decide.rs` ends the turn after that.

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
        lease::{Followed, HeldTurn, Interruption, TakeoverCandidate},
        lost_commits::{SeenEvent, SeenEventCheck},
    },
    telemetry::metrics::Takeover,
    turn::{
        Error,
        engine::Engine,
        lease::{leases::Claim, postponed::max_backoff},
        live::{hub::Channel, wakeups::Wakeup},
        run::cause::Cause,
    },
};

/// Turns read by one query.
const PAGE: u32 = 128;
/// Queries in one round, while there are more turns.
const PAGES: u32 = 32;
/// Turns that are taken over concurrently.
const MAX_CONCURRENT_TAKEOVERS: usize = 8;

impl Engine {
    /// Sends a heartbeat, which renews the leases of the turns that run here.
    pub async fn send_heartbeat(&self) -> Result<(), Error> {
        let sent = Instant::now();
        self.store.send_heartbeat().await?;
        self.leases
            .confirm_heartbeat(sent, self.max_heartbeat_age(), Instant::now());
        Ok(())
    }

    /// Announces that this replica stops, so that others immediately look for the turns that it
    /// left.
    pub async fn announce_shutdown(&self) {
        if let Err(error) = self.store.leave().await {
            tracing::warn!(%error, "failed to announce the shutdown to other replicas");
        }
    }

    /// How long a turn may run here without a heartbeat. Shorter than the lease, so that two owners
    /// never run the turn at the same time.
    pub fn max_heartbeat_age(&self) -> Duration {
        self.store.lease_ttl() * 4 / 5
    }

    /// Stops the turns whose lease was not renewed in time by this replica's clock, even if the
    /// database is unreachable.
    pub fn expire(&self) {
        self.leases.expire(self.max_heartbeat_age(), Instant::now());
    }

    /// Looks for cancel requests and lost leases of the turns that run here.
    pub async fn poll_cancels(&self) -> Result<(), Error> {
        self.poll_cancels_of_leases(self.leases.held()).await
    }

    /// Like [`Engine::poll_cancels`], for the turns of these sessions only.
    pub(in crate::turn) async fn poll_cancels_of_sessions(
        &self,
        sessions: &BTreeSet<SessionKey>,
    ) -> Result<(), Error> {
        let held = self
            .leases
            .held()
            .into_iter()
            .filter(|held| sessions.contains(&held.key));
        self.poll_cancels_of_leases(held.collect()).await
    }

    async fn poll_cancels_of_leases(&self, held: Vec<HeldTurn>) -> Result<(), Error> {
        if held.is_empty() {
            return Ok(());
        }
        let mut lost = BTreeSet::new();
        for (HeldTurn { key, turn, epoch }, why) in self.store.interrupted_turns(&held).await? {
            match why {
                Interruption::Cancelled => self.leases.cancel(&key, &turn, epoch),
                Interruption::LeaseLost => {
                    self.leases.lose(&key, epoch);
                    lost.insert(key);
                }
            }
        }
        // A takeover wrote events, or the session was deleted.
        self.poll_events_of_sessions(&lost).await
    }

    /// Reads new events of the sessions that are followed here, and which of their turns run on
    /// other replicas.
    pub async fn poll_events(&self) -> Result<(), Error> {
        let channels = self.hub.channels();
        let now = Instant::now();
        channels.iter().for_each(|channel| channel.tidy(now));
        self.poll_events_of_channels(channels).await
    }

    /// Like [`Engine::poll_events`], for these sessions only, if they are followed here.
    pub(in crate::turn) async fn poll_events_of_sessions(
        &self,
        sessions: &BTreeSet<SessionKey>,
    ) -> Result<(), Error> {
        self.poll_events_of_channels(
            sessions
                .iter()
                .filter_map(|key| self.hub.get(key))
                .collect(),
        )
        .await
    }

    async fn poll_events_of_channels(&self, channels: Vec<Arc<Channel>>) -> Result<(), Error> {
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
            channel.set_runs_remotely(running && !self.leases.runs(channel.key()));
            if channel.runs_remotely() && channel.has_readers() {
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

    /// Checks that the database still has the events that readers here have seen. A failover may
    /// lose the newest ones, and the rest of such a stream would belong to a history that no longer
    /// exists. Its streams end.
    pub async fn check_lost_events(&self) -> Result<(), Error> {
        let asked: Vec<_> = self
            .hub
            .channels()
            .into_iter()
            .map(|channel| (channel.marks(), channel))
            .collect();
        let marks = |(marks, channel): &(Vec<SeenEvent>, Arc<Channel>)| {
            marks
                .iter()
                .map(|mark| (channel.key().clone(), *mark))
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = asked.iter().flat_map(marks).collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut found: BTreeMap<SessionKey, Vec<(Seq, SeenEventCheck)>> = BTreeMap::new();
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
                .any(|(_, verdict)| matches!(verdict, SeenEventCheck::Lost(_)))
            {
                tracing::error!(session.id = %channel.key().session, "the database lost events that were delivered to readers");
            }
            channel.compared(&marks, found);
        }
        Ok(())
    }

    /// Resolves the sessions in which this replica may own a turn without knowing it. Either the
    /// response to the granting statement was lost, or the replica gave the turn up while the
    /// database was unreachable. A turn that never ran here begins. A turn that did is handed over,
    /// since its step has to be repeated as another attempt; if a bug ended its task, the
    /// step is repeated here.
    async fn resolve_uncertain(self: &Arc<Self>) -> Result<(), Error> {
        let (keys, asked) = (self.leases.uncertain(), Instant::now());
        if keys.is_empty() {
            return Ok(());
        }
        let owned = self.store.owned_here(&keys).await?;
        for key in keys {
            if self.leases.runs(&key) || owned.iter().all(|(owned, _)| *owned != key) {
                self.leases
                    .clear_uncertain(&key, self.store.lease_ttl(), asked);
            }
        }
        self.resolve_all(owned).await
    }

    /// Looks for turns that this replica owns without knowing it, if there may be any.
    async fn resolve_unknown_grants(self: &Arc<Self>) -> Result<(), Error> {
        if self.leases.unknown_grants_until().is_none() {
            return Ok(());
        }
        let asked = Instant::now();
        let held: Vec<SessionKey> = self
            .leases
            .held()
            .into_iter()
            .map(|held| held.key)
            .collect();
        let owned = self.store.owned_unknown(&held, PAGE).await?;
        if owned.is_empty() {
            self.leases
                .clear_unknown_grants(self.store.lease_ttl(), asked);
        }
        self.resolve_all(owned).await
    }

    /// Records that this replica may own turns that it does not know of. There should be none.
    pub fn mark_unknown_grants(&self) {
        let now = Instant::now();
        let young = self.store.lease_ttl();
        self.leases
            .mark_unknown_grants(now.checked_sub(young).unwrap_or(now));
    }

    async fn resolve_all(self: &Arc<Self>, owned: Vec<(SessionKey, Grant)>) -> Result<(), Error> {
        let mut first = Ok(());
        for (key, grant) in owned {
            let resolved = self.resolve(&key, &grant).await;
            if let Err(error) = &resolved {
                tracing::warn!(session.id = %key.session, turn.id = %grant.turn, %error, "failed to resolve an uncertain grant");
            }
            first = first.and(resolved);
        }
        first
    }

    async fn resolve(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        match self.leases.claim(key, &grant.turn, grant.fence.epoch) {
            Claim::Leave => {}
            Claim::Adopt if self.may_start() => self.adopt(key, grant).await?,
            Claim::Repeat if self.may_start() => self.repeat(key, grant).await?,
            Claim::Adopt | Claim::Release | Claim::Repeat => {
                if self.store.release(key, grant).await? {
                    tracing::info!(session.id = %key.session, turn.id = %grant.turn, "released a turn that does not run on this replica");
                    self.wake(Wakeup::HandOver(key.clone()));
                }
            }
        }
        Ok(())
    }

    async fn adopt(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        let mut request = self.leases.request(key);
        if let Some(grant) = request.answered(self.store.adopt_owned(key, grant).await)? {
            tracing::info!(session.id = %key.session, turn.id = %grant.turn, "adopted a turn after the response to its grant was lost");
            self.start(key.clone(), grant, request.sent(), Cause::Continued);
        }
        Ok(())
    }

    async fn repeat(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        let mut request = self.leases.request(key);
        if let Some(grant) = request.answered(self.store.repeat(key, grant).await)? {
            tracing::warn!(session.id = %key.session, turn.id = %grant.turn, "repeating the step of a turn whose task failed on this replica");
            self.metrics.takeover(Takeover::Taken);
            self.start(key.clone(), grant, request.sent(), Cause::Continued);
        }
        Ok(())
    }

    /// Closes tool calls past their deadline. If a replica has died or handed turns back, takes
    /// those turns over.
    pub async fn take_over(self: &Arc<Self>) -> Result<(), Error> {
        // A grant that cannot be resolved yet must not delay the takeovers.
        let resolved = self.resolve_uncertain().await;
        let resolved = resolved.and(self.resolve_unknown_grants().await);
        let signs = self.store.orphan_reports().await?;
        let again = self.postponed.due(Instant::now());
        let orphans = !signs.is_empty() || !again.is_empty();
        let Some(found) = self.take_over_in_pages(orphans).await? else {
            return resolved;
        };
        // Their turns continued elsewhere.
        again
            .iter()
            .filter(|key| !found.contains_key(key))
            .for_each(|key| self.postponed.forget(key));
        if !signs.is_empty() && found.values().all(|waiting| *waiting) {
            self.store.clear_orphan_reports(&signs).await?;
        }
        resolved
    }

    /// Takes over all turns without an owner, whether or not a replica is known to have left any.
    pub async fn take_over_all(self: &Arc<Self>) -> Result<(), Error> {
        self.take_over_in_pages(true).await.map(drop)
    }

    /// The sessions that needed an action, and whether they were waiting for tools. Returns `None`
    /// if there may be more.
    async fn take_over_in_pages(
        self: &Arc<Self>,
        orphans: bool,
    ) -> Result<Option<BTreeMap<SessionKey, bool>>, Error> {
        let mut all = BTreeMap::new();
        for _ in 0..PAGES {
            if !self.may_start() {
                return Ok(None);
            }
            let postponed = self.postponed.at(Instant::now());
            let found = self.store.candidates(orphans, PAGE, &postponed).await?;
            let more = found.len() == PAGE as usize;
            let each = |candidate: &TakeoverCandidate| (candidate.key.clone(), candidate.waiting);
            all.extend(found.iter().map(each));
            stream::iter(found)
                .for_each_concurrent(MAX_CONCURRENT_TAKEOVERS, |candidate| {
                    self.try_take_over(candidate)
                })
                .await;
            if !more {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    async fn try_take_over(self: &Arc<Self>, candidate: TakeoverCandidate) {
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
        let pause = max_backoff(error);
        if self.postponed.postpone(key, Instant::now(), pause) {
            tracing::warn!(session.id = %key.session, %error, "turn takeover failed; retrying later");
        } else {
            tracing::debug!(session.id = %key.session, %error, "turn takeover failed again");
        }
    }

    async fn take_over_one(self: &Arc<Self>, candidate: TakeoverCandidate) -> Result<(), Error> {
        let TakeoverCandidate {
            key,
            epoch,
            waiting,
        } = candidate;
        if waiting && self.close_overdue(&key).await? {
            return Ok(());
        }
        self.acquire_turn(key, epoch).await
    }

    async fn acquire_turn(self: &Arc<Self>, key: SessionKey, epoch: i64) -> Result<(), Error> {
        let mut request = self.leases.request(&key);
        let Some(grant) = request.answered(self.store.takeover(&key, epoch).await)? else {
            self.metrics.takeover(Takeover::Lost);
            return Ok(());
        };
        tracing::info!(session.id = %key.session, turn.id = %grant.turn, "took over a turn");
        self.metrics.takeover(Takeover::Taken);
        self.start(key, grant, request.sent(), Cause::Continued);
        Ok(())
    }
}
