//! The takeover of turns without an owner. `turn.max_takeovers` limits the takeovers of one turn;
//! `run/decide.rs` ends the turn after that.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Instant};

use futures_util::{StreamExt as _, stream};

use crate::{
    model::{SessionKey, TurnId},
    store::{self, grant::Grant, lease::TakeoverCandidate},
    telemetry::metrics::Takeover,
    turn::{
        Error,
        engine::Engine,
        lease::{leases::Claim, postponed::max_backoff},
        live::wakeups::Wakeup,
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
    /// Resolves the sessions in which this replica may own a turn without knowing it. Either the
    /// response to the granting statement was lost, or the replica gave the turn up while the
    /// database was unreachable. A turn that never ran here begins. A turn that did is handed over,
    /// since its step has to be repeated as another attempt; if a bug ended its task, the
    /// step is repeated here.
    async fn resolve_uncertain(self: &Arc<Self>) -> Result<(), Error> {
        let (keys, asked) = (self.capacity.leases.uncertain(), Instant::now());
        if keys.is_empty() {
            return Ok(());
        }
        let owned = self.store.owned_here(&keys).await?;
        for key in keys {
            if self.capacity.leases.runs(&key) || owned.iter().all(|(owned, _)| *owned != key) {
                self.capacity.leases.clear_uncertain(&key, self.store.lease_ttl(), asked);
            }
        }
        self.resolve_all(owned).await
    }

    /// Looks for turns that this replica owns without knowing it, if there may be any.
    async fn resolve_unknown_grants(self: &Arc<Self>) -> Result<(), Error> {
        if self.capacity.leases.unknown_grants_until().is_none() {
            return Ok(());
        }
        let asked = Instant::now();
        let held: Vec<SessionKey> = self.capacity.leases.held().into_iter().map(|held| held.key).collect();
        let owned = self.store.owned_unknown(&held, PAGE).await?;
        if owned.is_empty() {
            self.capacity.leases.clear_unknown_grants(self.store.lease_ttl(), asked);
        }
        self.resolve_all(owned).await
    }

    /// Records that this replica may own turns that it does not know of. There should be none.
    pub fn mark_unknown_grants(&self) {
        let now = Instant::now();
        let young = self.store.lease_ttl();
        self.capacity.leases.mark_unknown_grants(now.checked_sub(young).unwrap_or(now));
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
        match self.capacity.leases.claim(key, &grant.turn, grant.fence.epoch) {
            Claim::Leave => {}
            Claim::Adopt if self.capacity.may_start() => self.adopt(key, grant).await?,
            Claim::Repeat if self.capacity.may_start() => self.repeat(key, grant).await?,
            Claim::Adopt | Claim::Release | Claim::Repeat => {
                if self.store.release(key, grant).await? {
                    tracing::info!(session.id = %key.session, turn.id = %grant.turn, "released a turn that does not run on this replica");
                    self.live.wake(Wakeup::HandOver(key.clone()));
                }
            }
        }
        Ok(())
    }

    async fn adopt(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        if let Some(turn) = self.acquire(key, self.store.adopt_owned(key, grant)).await? {
            tracing::info!(session.id = %key.session, turn.id = %turn, "adopted a turn after the response to its grant was lost");
        }
        Ok(())
    }

    async fn repeat(self: &Arc<Self>, key: &SessionKey, grant: &Grant) -> Result<(), Error> {
        if let Some(turn) = self.acquire(key, self.store.repeat(key, grant)).await? {
            tracing::warn!(session.id = %key.session, turn.id = %turn, "repeating the step of a turn whose task failed on this replica");
            self.metrics.takeover(Takeover::Taken);
        }
        Ok(())
    }

    /// Sends a statement, and runs the turn that it grants. Returns `None` if it grants none.
    async fn acquire(
        self: &Arc<Self>,
        key: &SessionKey,
        statement: impl Future<Output = Result<Option<Grant>, store::Error>>,
    ) -> Result<Option<TurnId>, Error> {
        let mut request = self.capacity.leases.request(key);
        let Some(grant) = request.answered(statement.await)? else {
            return Ok(None);
        };
        let turn = grant.turn.clone();
        self.start(key.clone(), grant, request.sent(), Cause::Continued);
        Ok(Some(turn))
    }

    /// Closes tool calls past their deadline. If a replica has died or handed turns back, takes
    /// those turns over.
    pub async fn take_over(self: &Arc<Self>) -> Result<(), Error> {
        // A grant that cannot be resolved yet must not delay the takeovers.
        let resolved = self.resolve_uncertain().await;
        let resolved = resolved.and(self.resolve_unknown_grants().await);
        let signs = self.store.orphan_reports().await?;
        let again = self.capacity.postponed.due(Instant::now());
        let orphans = !signs.is_empty() || !again.is_empty();
        let Some(found) = self.take_over_in_pages(orphans).await? else {
            return resolved;
        };
        // Their turns continued elsewhere.
        again.iter().filter(|key| !found.contains_key(key)).for_each(|key| self.capacity.postponed.forget(key));
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
    async fn take_over_in_pages(self: &Arc<Self>, orphans: bool) -> Result<Option<BTreeMap<SessionKey, bool>>, Error> {
        let mut all = BTreeMap::new();
        for _ in 0..PAGES {
            if !self.capacity.may_start() {
                return Ok(None);
            }
            let postponed = self.capacity.postponed.at(Instant::now());
            let found = self.store.candidates(orphans, PAGE, &postponed).await?;
            let more = found.len() == PAGE as usize;
            let each = |candidate: &TakeoverCandidate| (candidate.key.clone(), candidate.waiting);
            all.extend(found.iter().map(each));
            stream::iter(found)
                .for_each_concurrent(MAX_CONCURRENT_TAKEOVERS, |candidate| self.try_take_over(candidate))
                .await;
            if !more {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    async fn try_take_over(self: &Arc<Self>, candidate: TakeoverCandidate) {
        if !self.capacity.may_start() {
            return;
        }
        let key = candidate.key.clone();
        match self.take_over_one(candidate).await {
            Ok(()) => self.capacity.postponed.forget(&key),
            Err(error) => self.takeover_failed(&key, &error),
        }
    }

    fn takeover_failed(&self, key: &SessionKey, error: &Error) {
        self.metrics.takeover(Takeover::Failed);
        let pause = max_backoff(error);
        if self.capacity.postponed.postpone(key, Instant::now(), pause) {
            tracing::warn!(session.id = %key.session, %error, "turn takeover failed; retrying later");
        } else {
            tracing::debug!(session.id = %key.session, %error, "turn takeover failed again");
        }
    }

    async fn take_over_one(self: &Arc<Self>, candidate: TakeoverCandidate) -> Result<(), Error> {
        let TakeoverCandidate { key, epoch, waiting } = candidate;
        if waiting && self.close_overdue(&key).await? {
            return Ok(());
        }
        match self.acquire(&key, self.store.takeover(&key, epoch)).await? {
            Some(turn) => {
                tracing::info!(session.id = %key.session, turn.id = %turn, "took over a turn");
                self.metrics.takeover(Takeover::Taken);
            }
            None => self.metrics.takeover(Takeover::Lost),
        }
        Ok(())
    }
}
