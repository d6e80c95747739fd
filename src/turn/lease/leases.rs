//! The leases of this replica: which turns it runs, how a running turn is notified that it must
//! stop, and which grants are uncertain because the response to the granting statement was lost.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    model::{SessionKey, TenantId, TurnId},
    store::{self, lease::HeldTurn},
};

/// Most sessions with an uncertain grant that are tracked individually. Beyond that, all turns of
/// the replica are searched.
const MAX_UNCERTAIN: usize = 1000;

/// The leases that this replica knows of. Its heartbeat renews every turn that the database assigns
/// to it, so turns that are assigned to it but may not run here are tracked as uncertain.
#[derive(Debug, Default)]
pub struct Leases {
    table: Mutex<LeaseTable>,
}

/// The turns that run here, and those that may.
#[derive(Debug, Default)]
struct LeaseTable {
    held: BTreeMap<SessionKey, Arc<Lease>>,
    /// Statements in flight that may grant a turn, by session.
    requests: BTreeMap<SessionKey, usize>,
    /// The subset of `requests` that begins a turn.
    starts: BTreeMap<SessionKey, usize>,
    /// Compactions that run here, by tenant.
    compactions: BTreeMap<TenantId, usize>,
    uncertain: BTreeMap<SessionKey, Uncertain>,
    /// Until this time, turns may have been granted that are neither held nor tracked as uncertain.
    unknown_grants_until: Option<Instant>,
    /// When the last heartbeat that the database confirmed was sent.
    last_heartbeat: Option<Instant>,
}

/// A session in which this replica may own a turn without knowing it.
#[derive(Debug, Clone, Copy)]
struct Uncertain {
    since: Instant,
    /// The newest epoch under which a turn of the session is known to have run here.
    ran: Option<i64>,
    /// The newest epoch under which such a turn was ended by a bug.
    failed: Option<i64>,
}

/// The right to run one turn. It starts at the grant and lasts for as long as the replica's
/// heartbeats succeed.
#[derive(Debug)]
pub struct Lease {
    turn: TurnId,
    epoch: i64,
    granted: Instant,
    lost: CancellationToken,
    cancelled: CancellationToken,
}

/// A statement in flight that may grant a turn to this replica. The sender holds this until the
/// turn runs here. If the response is lost, or was never awaited, the grant is uncertain.
#[derive(Debug)]
pub struct GrantRequest {
    leases: Arc<Leases>,
    key: SessionKey,
    sent: Instant,
    answered: bool,
    starts: bool,
}

/// A compaction that runs here. It counts as a running turn for as long as this value is held.
#[derive(Debug)]
pub struct CompactionPlace {
    leases: Arc<Leases>,
    tenant: TenantId,
}

/// What to do with a turn that this replica owns according to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It runs here, or a statement that may have granted it has no response yet.
    Leave,
    /// It never ran here and can begin.
    Adopt,
    /// It ran here, or may have, and was given up. Another owner has to repeat its step.
    Release,
    /// A bug ended its task here. This replica repeats its step as a new owner.
    Repeat,
}

impl GrantRequest {
    /// Records the response. A lost response leaves the grant uncertain.
    pub fn answered<T>(&mut self, answer: Result<T, store::Error>) -> Result<T, store::Error> {
        self.answered = !matches!(&answer, Err(store::Error::Unavailable(_)));
        answer
    }

    /// The time before the statement was sent. A lease that it grants starts then.
    pub fn sent(&self) -> Instant {
        self.sent
    }
}

impl Drop for GrantRequest {
    fn drop(&mut self) {
        let mut table = self.leases.lock();
        take_one(&mut table.requests, &self.key);
        if self.starts {
            take_one(&mut table.starts, &self.key);
        }
        if !self.answered {
            table.mark_uncertain(&self.key, None, Instant::now());
        }
    }
}

impl Drop for CompactionPlace {
    fn drop(&mut self) {
        take_one(&mut self.leases.lock().compactions, &self.tenant);
    }
}

/// Decrements a count, and removes it at zero.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl LeaseTable {
    /// The turns and compactions that run here or are about to: of all tenants, and of this one.
    fn running(&self, tenant: &TenantId) -> (usize, usize) {
        let starting = |key: &&SessionKey| !self.held.contains_key(key);
        let sessions = || {
            let starting = self.starts.keys().filter(starting);
            self.held.keys().chain(starting)
        };
        let own = sessions().filter(|key| key.tenant == *tenant).count();
        let compactions: usize = self.compactions.values().sum();
        let own_compactions = self.compactions.get(tenant).copied().unwrap_or_default();
        (sessions().count() + compactions, own + own_compactions)
    }

    fn mark_uncertain(&mut self, key: &SessionKey, ran: Option<i64>, now: Instant) {
        let ran = ran.max(self.held.get(key).map(|lease| lease.epoch));
        if let Some(known) = self.uncertain.get_mut(key) {
            known.since = now;
            known.ran = known.ran.max(ran);
        } else if self.uncertain.len() < MAX_UNCERTAIN {
            let uncertain = Uncertain { since: now, ran, failed: None };
            self.uncertain.insert(key.clone(), uncertain);
        } else {
            self.unknown_grants_until = Some(now);
        }
    }
}

impl Lease {
    /// Fires when another owner has the turn, or this owner can no longer be sure that it has it.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Fires when a cancel of the turn is requested.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    fn is(&self, turn: &TurnId, epoch: i64) -> bool {
        self.epoch == epoch && self.turn == *turn
    }
}

impl Leases {
    /// Registers a lease that was granted by a statement sent at `sent`. An older lease of the same
    /// session is lost: a replica may take over a turn that it ran itself.
    pub fn hold(&self, key: &SessionKey, turn: &TurnId, epoch: i64, sent: Instant) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            turn: turn.clone(),
            epoch,
            granted: sent,
            lost: CancellationToken::new(),
            cancelled: CancellationToken::new(),
        });
        // A task that runs the turn here under an older epoch must stop.
        let mut table = self.lock();
        if let Some(uncertain) = table.uncertain.get_mut(key) {
            uncertain.ran = uncertain.ran.max(Some(epoch));
        }
        if table.held.get(key).is_some_and(|current| current.epoch > epoch) {
            lease.lost.cancel();
            // Either the newer lease is in force, or the database lost commits and reuses epochs.
            table.mark_uncertain(key, None, sent);
        } else if let Some(before) = table.held.insert(key.clone(), Arc::clone(&lease)) {
            before.lost.cancel();
        }
        lease
    }

    /// Removes a lease that ended or was handed back. A newer one of the same session stays.
    pub fn forget(&self, key: &SessionKey, lease: &Arc<Lease>) {
        let mut table = self.lock();
        if table.held.get(key).is_some_and(|current| Arc::ptr_eq(current, lease)) {
            table.held.remove(key);
        }
    }

    /// Whether the lease of this turn and epoch is registered here.
    pub fn holds(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> bool {
        self.lock().held.get(key).is_some_and(|lease| lease.is(turn, epoch))
    }

    /// Registers a statement that is about to be sent and that may grant a turn of the session, but
    /// begins none.
    pub fn request(self: &Arc<Self>, key: &SessionKey) -> GrantRequest {
        *self.lock().requests.entry(key.clone()).or_default() += 1;
        self.requested(key, false)
    }

    /// Registers a statement that is about to be sent and that begins a turn. `admit` gets the
    /// number of running turns and compactions of all tenants and of this one. No other turn is
    /// admitted while it decides.
    pub fn request_start<E>(
        self: &Arc<Self>,
        key: &SessionKey,
        admit: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<GrantRequest, E> {
        let mut table = self.lock();
        let (all, own) = table.running(&key.tenant);
        admit(all, own)?;
        *table.requests.entry(key.clone()).or_default() += 1;
        *table.starts.entry(key.clone()).or_default() += 1;
        drop(table);
        Ok(self.requested(key, true))
    }

    fn requested(self: &Arc<Self>, key: &SessionKey, starts: bool) -> GrantRequest {
        GrantRequest { leases: Arc::clone(self), key: key.clone(), sent: Instant::now(), answered: false, starts }
    }

    /// Counts a compaction as running, if `admit` accepts one more.
    pub fn compact<E>(
        self: &Arc<Self>,
        tenant: &TenantId,
        admit: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<CompactionPlace, E> {
        let mut table = self.lock();
        let (all, own) = table.running(tenant);
        admit(all, own)?;
        *table.compactions.entry(tenant.clone()).or_default() += 1;
        Ok(CompactionPlace { leases: Arc::clone(self), tenant: tenant.clone() })
    }

    /// Records that a turn which ran here under this epoch was given up. Its lease may still be in
    /// force, and writes may be in flight.
    pub fn abandon(&self, key: &SessionKey, epoch: i64, now: Instant) {
        self.lock().mark_uncertain(key, Some(epoch), now);
    }

    /// Like [`Leases::abandon`], for a turn that was ended by a bug.
    pub fn failed(&self, key: &SessionKey, epoch: i64, now: Instant) {
        let mut table = self.lock();
        table.mark_uncertain(key, Some(epoch), now);
        if let Some(known) = table.uncertain.get_mut(key) {
            known.failed = known.failed.max(Some(epoch));
        }
    }

    /// The sessions with an uncertain grant.
    pub fn uncertain(&self) -> Vec<SessionKey> {
        self.lock().uncertain.keys().cloned().collect()
    }

    /// Records that at `asked` no action was needed for this uncertain grant. The grant is removed
    /// if the statement that may have made it was sent at least `ttl` before: that statement is
    /// over.
    pub fn clear_uncertain(&self, key: &SessionKey, ttl: Duration, asked: Instant) {
        let mut table = self.lock();
        let is_over = |since: Instant| asked.saturating_duration_since(since) >= ttl;
        if table.uncertain.get(key).is_some_and(|uncertain| is_over(uncertain.since)) {
            table.uncertain.remove(key);
        }
    }

    /// Records that turns unknown to this replica may have been granted to it until `until`.
    pub fn mark_unknown_grants(&self, until: Instant) {
        let mut table = self.lock();
        table.unknown_grants_until = table.unknown_grants_until.max(Some(until));
    }

    /// Until when unknown turns may have been granted. Returns `None` if there is no doubt.
    pub fn unknown_grants_until(&self) -> Option<Instant> {
        self.lock().unknown_grants_until
    }

    /// Records that no unknown turns were found at `asked`. A doubt that is younger than `ttl`
    /// stays: a turn that was granted just now may not be visible yet.
    pub fn clear_unknown_grants(&self, ttl: Duration, asked: Instant) {
        let mut table = self.lock();
        table.unknown_grants_until =
            table.unknown_grants_until.filter(|until| asked.saturating_duration_since(*until) < ttl);
    }

    /// Decides about a turn of a session with an uncertain grant that this replica was just found
    /// to own under this epoch.
    pub fn claim(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> Claim {
        let table = self.lock();
        let runs = table.held.get(key).is_some_and(|lease| lease.is(turn, epoch));
        if runs || table.requests.contains_key(key) {
            return Claim::Leave;
        }
        match table.uncertain.get(key) {
            Some(known) if known.failed == Some(epoch) => Claim::Repeat,
            Some(known) if known.ran < Some(epoch) => Claim::Adopt,
            Some(_) | None => Claim::Release,
        }
    }

    /// Whether a turn of the session runs here.
    pub fn runs(&self, key: &SessionKey) -> bool {
        self.lock().held.contains_key(key)
    }

    /// The number of turns that run here.
    pub fn count(&self) -> usize {
        self.lock().held.len()
    }

    /// The turns and compactions that run here or are about to: of all tenants, and of this one.
    pub fn running(&self, tenant: &TenantId) -> (usize, usize) {
        self.lock().running(tenant)
    }

    /// The number of turns and compactions that run here, by tenant.
    pub fn running_by_tenant(&self) -> BTreeMap<TenantId, u64> {
        let table = self.lock();
        let mut running = BTreeMap::new();
        for key in table.held.keys() {
            *running.entry(key.tenant.clone()).or_default() += 1;
        }
        for (tenant, compactions) in &table.compactions {
            *running.entry(tenant.clone()).or_default() += *compactions as u64;
        }
        running
    }

    /// The turns that run here.
    pub fn held(&self) -> Vec<HeldTurn> {
        let held = |(key, lease): (&SessionKey, &Arc<Lease>)| {
            let Lease { turn, epoch, .. } = lease.as_ref();
            HeldTurn { key: key.clone(), turn: turn.clone(), epoch: *epoch }
        };
        self.lock().held.iter().map(held).collect()
    }

    /// Notifies a running turn of a cancel request. Does nothing if the session runs another turn.
    pub fn cancel(&self, key: &SessionKey, turn: &TurnId, epoch: i64) {
        if let Some(lease) = self.lock().held.get(key).filter(|lease| lease.is(turn, epoch)) {
            lease.cancelled.cancel();
        }
    }

    /// Notifies a running turn that its lease is no longer in force. A newer lease of the session
    /// is not affected.
    pub fn lose(&self, key: &SessionKey, epoch: i64) {
        if let Some(lease) = self.lock().held.get(key).filter(|lease| lease.epoch <= epoch) {
            lease.lost.cancel();
        }
    }

    /// Records that the database confirmed the heartbeat that was sent at `sent`. Leases that
    /// expired before `now` stay lost: another replica may have the turn.
    pub fn confirm_heartbeat(&self, sent: Instant, ttl: Duration, now: Instant) {
        self.expire(ttl, now);
        let mut table = self.lock();
        table.last_heartbeat = table.last_heartbeat.max(Some(sent));
    }

    /// Expires every lease whose grant and last heartbeat are both at least `ttl` old by this
    /// replica's clock.
    pub fn expire(&self, ttl: Duration, now: Instant) {
        let table = self.lock();
        for lease in table.held.values() {
            let known = table.last_heartbeat.max(Some(lease.granted));
            if known.is_none_or(|known| now.saturating_duration_since(known) >= ttl) {
                lease.lost.cancel();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        lock(&self.table)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
