//! The leases of this replica: which turns it runs, how a running turn learns that it must stop,
//! and which grants are uncertain because the answer to the statement that may have made them was
//! lost.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    model::{SessionKey, TenantId, TurnId},
    store::{
        self,
        lease::{Held, Pulse},
    },
};

/// Sessions with an uncertain grant that are looked after at once; beyond that their leases run out
/// by themselves.
const MOST_UNCERTAIN: usize = 1000;

/// The turns in this replica's memory. Only these are kept alive: never «all rows that carry my
/// name».
#[derive(Debug, Default)]
pub struct Leases {
    table: Mutex<LeaseTable>,
}

/// The turns that run here, and those that may.
#[derive(Debug, Default)]
struct LeaseTable {
    held: BTreeMap<SessionKey, Arc<Lease>>,
    /// Statements under way that may grant a turn, by session.
    requests: BTreeMap<SessionKey, usize>,
    /// Those among them that begin one.
    starts: BTreeMap<SessionKey, usize>,
    /// Compactions that are made here, by tenant.
    compactions: BTreeMap<TenantId, usize>,
    uncertain: BTreeMap<SessionKey, Uncertain>,
}

/// A session in which this replica may own a turn without knowing it.
#[derive(Debug, Clone, Copy)]
struct Uncertain {
    since: Instant,
    /// The newest epoch under which a turn of the session is known to have run here.
    ran: Option<i64>,
}

/// The right to run one turn, for as long as it is renewed.
#[derive(Debug)]
pub struct Lease {
    turn: TurnId,
    epoch: i64,
    renewed: Mutex<Instant>,
    lost: CancellationToken,
    cancelled: CancellationToken,
}

/// A statement under way that may grant a turn to this replica. Whoever sends one holds this until
/// the turn runs here; when the answer is lost, or never waited for, the grant is uncertain.
#[derive(Debug)]
pub struct GrantRequest {
    leases: Arc<Leases>,
    key: SessionKey,
    sent: Instant,
    answered: bool,
    starts: bool,
}

/// A compaction that is made here, which counts as a running turn for as long as this is held.
#[derive(Debug)]
pub struct CompactionPlace {
    leases: Arc<Leases>,
    tenant: TenantId,
}

/// What to do about a turn that this replica owns by the database's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It runs here, or a statement that may have granted it has not been answered yet.
    Leave,
    /// It never ran here: it can begin.
    Adopt,
    /// It ran here and was given up: another owner has to repeat its step.
    Release,
}

impl GrantRequest {
    /// Takes in the answer. One that was lost leaves the grant uncertain.
    pub fn answered<T>(&mut self, answer: Result<T, store::Error>) -> Result<T, store::Error> {
        self.answered = !matches!(&answer, Err(store::Error::Unavailable(_)));
        answer
    }

    /// When the statement was sent, at the latest: a lease that it grants counts from here.
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

/// Takes one off a count, which ends at none.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl LeaseTable {
    /// How many turns run here or are about to, and compactions: of all tenants and of this one.
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
            *known = Uncertain {
                since: now,
                ran: known.ran.max(ran),
            };
        } else if self.uncertain.len() < MOST_UNCERTAIN {
            self.uncertain
                .insert(key.clone(), Uncertain { since: now, ran });
        }
    }
}

impl Lease {
    /// Fires when another owner has the turn, or this one can no longer be sure that it has it.
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

    fn renew(&self, at: Instant) {
        let mut renewed = lock(&self.renewed);
        *renewed = (*renewed).max(at);
    }
}

impl Leases {
    /// Notes a lease that was granted by a statement sent at `sent`. An older one of the same
    /// session is lost: this replica may take over what it ran itself.
    pub fn hold(&self, key: &SessionKey, turn: &TurnId, epoch: i64, sent: Instant) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            turn: turn.clone(),
            epoch,
            renewed: Mutex::new(sent),
            lost: CancellationToken::new(),
            cancelled: CancellationToken::new(),
        });
        // Whoever ran the turn here under an older epoch must stop.
        let mut table = self.lock();
        if let Some(uncertain) = table.uncertain.get_mut(key) {
            uncertain.ran = uncertain.ran.max(Some(epoch));
        }
        if table
            .held
            .get(key)
            .is_some_and(|current| current.epoch > epoch)
        {
            lease.lost.cancel();
            // Either the newer one is in force, or the database lost commits and numbers epochs
            // anew.
            table.mark_uncertain(key, None, sent);
        } else if let Some(before) = table.held.insert(key.clone(), Arc::clone(&lease)) {
            before.lost.cancel();
        }
        lease
    }

    /// Forgets a lease that ended or was given back. A newer one of the same session stays.
    pub fn forget(&self, key: &SessionKey, lease: &Arc<Lease>) {
        let mut table = self.lock();
        if table
            .held
            .get(key)
            .is_some_and(|current| Arc::ptr_eq(current, lease))
        {
            table.held.remove(key);
        }
    }

    /// Whether this lease is known here.
    pub fn holds(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> bool {
        self.lock()
            .held
            .get(key)
            .is_some_and(|lease| lease.is(turn, epoch))
    }

    /// Notes that a statement is about to be sent that may grant a turn of the session, and begins none.
    pub fn request(self: &Arc<Self>, key: &SessionKey) -> GrantRequest {
        *self.lock().requests.entry(key.clone()).or_default() += 1;
        self.requested(key, false)
    }

    /// The same of a statement that begins a turn, if there is room for one more: `admit` is given how many
    /// run, of all tenants and of this one, and none begins before it has decided.
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
        GrantRequest {
            leases: Arc::clone(self),
            key: key.clone(),
            sent: Instant::now(),
            answered: false,
            starts,
        }
    }

    /// Counts a compaction as running, if there is room for one more.
    pub fn compact<E>(
        self: &Arc<Self>,
        tenant: &TenantId,
        admit: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<CompactionPlace, E> {
        let mut table = self.lock();
        let (all, own) = table.running(tenant);
        admit(all, own)?;
        *table.compactions.entry(tenant.clone()).or_default() += 1;
        Ok(CompactionPlace {
            leases: Arc::clone(self),
            tenant: tenant.clone(),
        })
    }

    /// Notes that a turn which ran here under this epoch was given up, perhaps with its lease in
    /// force and with writes under way.
    pub fn abandon(&self, key: &SessionKey, epoch: i64, now: Instant) {
        self.lock().mark_uncertain(key, Some(epoch), now);
    }

    /// The sessions with an uncertain grant. What is older than `ttl` is forgotten: that lease has
    /// run out.
    pub fn uncertain(&self, ttl: Duration, now: Instant) -> Vec<SessionKey> {
        let mut table = self.lock();
        table
            .uncertain
            .retain(|_, uncertain| now.saturating_duration_since(uncertain.since) < ttl);
        table.uncertain.keys().cloned().collect()
    }

    /// What to do about a turn of a session with an uncertain grant, which this replica was just
    /// seen to own under this epoch.
    pub fn claim(&self, key: &SessionKey, turn: &TurnId, epoch: i64) -> Claim {
        let table = self.lock();
        let runs = table
            .held
            .get(key)
            .is_some_and(|lease| lease.is(turn, epoch));
        if runs || table.requests.contains_key(key) {
            Claim::Leave
        } else if table
            .uncertain
            .get(key)
            .is_some_and(|uncertain| uncertain.ran >= Some(epoch))
        {
            Claim::Release
        } else {
            Claim::Adopt
        }
    }

    /// Whether a turn of the session runs here.
    pub fn runs(&self, key: &SessionKey) -> bool {
        self.lock().held.contains_key(key)
    }

    /// How many turns run here.
    pub fn count(&self) -> usize {
        self.lock().held.len()
    }

    /// How many turns run here or are about to, and compactions: of all tenants and of this one.
    pub fn running(&self, tenant: &TenantId) -> (usize, usize) {
        self.lock().running(tenant)
    }

    /// How many turns and compactions of each tenant run here.
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

    /// What a heartbeat has to renew.
    pub fn held(&self) -> Vec<Held> {
        let held = |(key, lease): (&SessionKey, &Arc<Lease>)| {
            let Lease { turn, epoch, .. } = lease.as_ref();
            Held {
                key: key.clone(),
                turn: turn.clone(),
                epoch: *epoch,
            }
        };
        self.lock().held.iter().map(held).collect()
    }

    /// Notifies a running turn that its cancel was requested. Another turn of the session is left
    /// alone.
    pub fn cancel(&self, key: &SessionKey, turn: &TurnId, epoch: i64) {
        if let Some(lease) = self
            .lock()
            .held
            .get(key)
            .filter(|lease| lease.is(turn, epoch))
        {
            lease.cancelled.cancel();
        }
    }

    /// Tells a running turn that its lease is no longer in force. A newer lease of the session is
    /// left alone.
    pub fn lose(&self, key: &SessionKey, epoch: i64) {
        if let Some(lease) = self
            .lock()
            .held
            .get(key)
            .filter(|lease| lease.epoch <= epoch)
        {
            lease.lost.cancel();
        }
    }

    /// Takes in what a heartbeat sent at `sent` found. A lease that is another's, or gone, is lost.
    pub fn take_in(&self, sent: Instant, asked: &[Held], pulses: &[Pulse]) {
        let table = self.lock();
        for Held { key, turn, epoch } in asked {
            let Some(lease) = table.held.get(key).filter(|lease| lease.is(turn, *epoch)) else {
                continue;
            };
            match pulses.iter().find(|pulse| pulse.held.key == *key) {
                Some(pulse) if pulse.mine => {
                    if pulse.renewed {
                        lease.renew(sent);
                    }
                    if pulse.cancelled {
                        lease.cancelled.cancel();
                    }
                }
                Some(_) | None => lease.lost.cancel(),
            }
        }
    }

    /// Gives up every lease that was not renewed within `ttl` by this replica's own clock.
    pub fn expire(&self, ttl: Duration, now: Instant) {
        for lease in self.lock().held.values() {
            if now.saturating_duration_since(*lock(&lease.renewed)) >= ttl {
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
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    fn key(session: &str) -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new(session))
    }

    fn turn() -> TurnId {
        TurnId::new("turn")
    }

    fn pulse(session: &str, mine: bool, renewed: bool, cancelled: bool) -> Pulse {
        Pulse {
            held: Held {
                key: key(session),
                turn: turn(),
                epoch: 1,
            },
            mine,
            renewed,
            cancelled,
        }
    }

    #[test]
    fn a_lease_is_lost_if_taken_deleted_or_not_renewed_in_time() {
        let ttl = Duration::from_secs(10);
        let begun = Instant::now();
        let table: [(&str, &[Pulse], u64, bool); 5] = [
            ("renewed", &[pulse("s", true, true, false)], 14, false),
            (
                "busy, so not renewed, but young",
                &[pulse("s", true, false, false)],
                9,
                false,
            ),
            (
                "busy, so not renewed, and old",
                &[pulse("s", true, false, false)],
                10,
                true,
            ),
            ("another's", &[pulse("s", false, false, false)], 6, true),
            ("gone", &[], 6, true),
        ];
        for (what, pulses, now, lost) in table {
            let leases = Leases::default();
            let lease = leases.hold(&key("s"), &turn(), 1, begun);
            leases.take_in(begun + Duration::from_secs(5), &leases.held(), pulses);
            leases.expire(ttl, begun + Duration::from_secs(now));
            assert_eq!(lease.lost().is_cancelled(), lost, "{what}");
        }
    }

    #[test]
    fn a_heartbeat_of_an_older_lease_does_not_affect_a_newer_one() {
        let leases = Leases::default();
        let old = leases.hold(&key("s"), &turn(), 1, Instant::now());
        let asked = leases.held();
        let new = leases.hold(&key("s"), &turn(), 2, Instant::now());
        assert!(old.lost().is_cancelled(), "two owners on one replica");
        leases.take_in(Instant::now(), &asked, &[]);
        assert!(!new.lost().is_cancelled());
        leases.forget(&key("s"), &old);
        assert!(leases.holds(&key("s"), &turn(), 2));
    }

    #[test]
    fn a_newer_lease_of_the_session_ends_the_older_one() {
        for (first, second) in [(1, 2), (2, 1), (1, 1)] {
            let leases = Leases::default();
            let key = key("s");
            let a = leases.hold(&key, &turn(), first, Instant::now());
            let b = leases.hold(&key, &turn(), second, Instant::now());
            let lost = (a.lost().is_cancelled(), b.lost().is_cancelled());
            assert_eq!(
                lost,
                (first <= second, first > second),
                "{first} then {second}"
            );
            assert!(leases.holds(&key, &turn(), first.max(second)));
            leases.forget(&key, if first <= second { &a } else { &b });
            assert_eq!(leases.count(), 1, "what is lost takes nothing with it");
        }
    }

    #[test]
    fn what_begins_no_turn_does_not_count_as_running_and_compactions_do() {
        let leases = Arc::new(Leases::default());
        let one = |all: usize, own: usize| match (all, own) {
            (0, 0) => Ok(()),
            counted => Err(counted),
        };
        let tenant = &key("s").tenant;
        let queueing = leases.request(&key("queue"));
        let starting = leases.request_start(&key("s"), one).expect("there is room");
        let refused = leases.request_start(&key("other"), one).map(drop);
        assert_eq!(refused, Err((1, 1)));
        drop(queueing);
        let lease = leases.hold(&key("s"), &turn(), 1, starting.sent());
        assert_eq!(leases.running(tenant), (1, 1), "counted once");
        drop(starting);
        assert_eq!(leases.compact(tenant, one).map(drop), Err((1, 1)));
        leases.forget(&key("s"), &lease);
        let compacting = leases.compact(tenant, one).expect("there is room");
        assert_eq!(leases.running(tenant), (1, 1));
        assert_eq!(leases.running_by_tenant().get(tenant), Some(&1));
        drop(compacting);
        assert_eq!(leases.running(tenant), (0, 0));
        assert!(leases.running_by_tenant().is_empty());
    }

    #[test]
    fn a_grant_is_uncertain_from_its_lost_answer_until_its_lease_has_run_out() {
        let leases = Arc::new(Leases::default());
        let begun = Instant::now();
        let ttl = Duration::from_secs(10);
        let answered =
            |key, answer: Result<(), store::Error>| drop(leases.request(&key).answered(answer));
        answered(key("answered"), Ok(()));
        answered(key("refused"), Err(store::Error::Conflict(String::new())));
        assert_eq!(leases.uncertain(ttl, begun), []);
        answered(key("lost"), Err(store::Error::Unavailable(String::new())));
        drop(leases.request(&key("left")));
        assert_eq!(
            leases.uncertain(ttl, begun + Duration::from_secs(9)),
            [key("left"), key("lost")]
        );
        assert_eq!(leases.uncertain(ttl, begun + Duration::from_secs(11)), []);
    }

    #[test]
    fn a_turn_with_a_lost_grant_is_adopted_unless_it_runs_or_ran_here() {
        let leases = Arc::new(Leases::default());
        let claim = |epoch| leases.claim(&key("s"), &turn(), epoch);
        drop(leases.request(&key("s")));
        assert_eq!(claim(1), Claim::Adopt);
        let request = leases.request(&key("s"));
        assert_eq!(
            claim(1),
            Claim::Leave,
            "the answer to this request may say so"
        );
        let lease = leases.hold(&key("s"), &turn(), 1, request.sent());
        drop(request);
        assert_eq!(claim(1), Claim::Leave, "it runs");
        leases.forget(&key("s"), &lease);
        assert_eq!(claim(1), Claim::Release, "it ran");
        assert_eq!(claim(2), Claim::Adopt, "another grant");
        leases.abandon(&key("s"), 2, Instant::now());
        assert_eq!(claim(2), Claim::Release);
    }

    #[test]
    fn the_same_epoch_of_another_turn_is_another_lease() {
        let leases = Leases::default();
        let old = leases.hold(&key("s"), &TurnId::new("lost"), 1, Instant::now());
        let asked = leases.held();
        let new = leases.hold(&key("s"), &turn(), 1, Instant::now());
        assert!(old.lost().is_cancelled() && !leases.holds(&key("s"), &TurnId::new("lost"), 1));
        leases.take_in(Instant::now(), &asked, &[]);
        leases.cancel(&key("s"), &TurnId::new("lost"), 1);
        assert!(!new.lost().is_cancelled() && !new.cancelled().is_cancelled());
    }

    #[test]
    fn a_cancel_reaches_only_the_epoch_it_was_meant_for() {
        let leases = Leases::default();
        let lease = leases.hold(&key("s"), &turn(), 2, Instant::now());
        leases.cancel(&key("s"), &turn(), 1);
        assert!(!lease.cancelled().is_cancelled());
        leases.cancel(&key("s"), &turn(), 2);
        assert!(lease.cancelled().is_cancelled());
    }

    #[test]
    fn a_lease_that_is_no_longer_in_force_is_lost_and_a_newer_one_is_not() {
        let leases = Leases::default();
        let lease = leases.hold(&key("s"), &turn(), 2, Instant::now());
        leases.lose(&key("s"), 1);
        assert!(!lease.lost().is_cancelled());
        leases.lose(&key("s"), 2);
        assert!(lease.lost().is_cancelled());
    }

    #[test]
    fn a_cancel_reaches_the_turn_that_runs() {
        let leases = Leases::default();
        let told = leases.hold(&key("a"), &turn(), 1, Instant::now());
        let by_flag = leases.hold(&key("b"), &turn(), 1, Instant::now());
        leases.cancel(&key("a"), &turn(), 1);
        leases.take_in(
            Instant::now(),
            &leases.held(),
            &[pulse("a", true, true, false), pulse("b", true, true, true)],
        );
        assert!(told.cancelled().is_cancelled());
        assert!(by_flag.cancelled().is_cancelled());
    }
}
