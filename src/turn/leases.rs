//! The leases of this replica: which turns it runs, and how a running turn learns that it must stop.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    model::SessionKey,
    store::lease::{Held, Pulse},
};

/// Sessions that are looked after at once because a grant may have been lost there; beyond that their leases run out by themselves.
const MOST_DOUBTS: usize = 1000;

/// The turns in this replica's memory. Only these are kept alive: never «all rows that carry my name».
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<BTreeMap<SessionKey, Arc<Lease>>>,
    doubts: Mutex<BTreeMap<SessionKey, Instant>>,
}

/// The right to run one turn, for as long as it is renewed.
#[derive(Debug)]
pub struct Lease {
    epoch: i64,
    renewed: Mutex<Instant>,
    lost: CancellationToken,
    cancelled: CancellationToken,
}

impl Lease {
    /// Fires when another owner has the turn, or this one can no longer be sure that it has it.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Fires when somebody wants the turn cancelled.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    fn renew(&self, at: Instant) {
        let mut renewed = lock(&self.renewed);
        *renewed = (*renewed).max(at);
    }
}

impl Leases {
    /// Notes a lease that was granted by a statement sent at `sent`. An older one of the same session is lost: this replica may
    /// take over what it ran itself.
    pub fn hold(&self, key: &SessionKey, epoch: i64, sent: Instant) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            epoch,
            renewed: Mutex::new(sent),
            lost: CancellationToken::new(),
            cancelled: CancellationToken::new(),
        });
        // Whoever ran the turn here under an older epoch must stop.
        let mut held = lock(&self.held);
        if held.get(key).is_some_and(|current| current.epoch > epoch) {
            lease.lost.cancel();
        } else if let Some(before) = held.insert(key.clone(), Arc::clone(&lease)) {
            before.lost.cancel();
        }
        lease
    }

    /// Forgets a lease that ended or was given back. A newer one of the same session stays.
    pub fn forget(&self, key: &SessionKey, lease: &Arc<Lease>) {
        let mut held = lock(&self.held);
        if held.get(key).is_some_and(|current| Arc::ptr_eq(current, lease)) {
            held.remove(key);
        }
    }

    /// Whether this lease is known here.
    pub fn holds(&self, key: &SessionKey, epoch: i64) -> bool {
        lock(&self.held).get(key).is_some_and(|lease| lease.epoch == epoch)
    }

    /// The epoch under which a turn of the session runs here.
    pub fn epoch(&self, key: &SessionKey) -> Option<i64> {
        lock(&self.held).get(key).map(|lease| lease.epoch)
    }

    /// Notes that this replica may have been granted a turn without its knowing: the answer was lost at `now`.
    pub fn doubt(&self, key: &SessionKey, now: Instant) {
        let mut doubts = lock(&self.doubts);
        if doubts.len() < MOST_DOUBTS || doubts.contains_key(key) {
            doubts.insert(key.clone(), now);
        }
    }

    /// The sessions with such a doubt. What is older than `ttl` is forgotten: that lease has run out.
    pub fn doubts(&self, ttl: Duration, now: Instant) -> Vec<SessionKey> {
        let mut doubts = lock(&self.doubts);
        doubts.retain(|_, since| now.saturating_duration_since(*since) < ttl);
        doubts.keys().cloned().collect()
    }

    /// There is no doubt any more.
    pub fn is_clear(&self, key: &SessionKey) {
        lock(&self.doubts).remove(key);
    }

    /// Whether a turn of the session runs here.
    pub fn runs(&self, key: &SessionKey) -> bool {
        lock(&self.held).contains_key(key)
    }

    /// How many turns run here.
    pub fn count(&self) -> usize {
        lock(&self.held).len()
    }

    /// What a heartbeat has to renew.
    pub fn held(&self) -> Vec<Held> {
        lock(&self.held).iter().map(|(key, lease)| Held { key: key.clone(), epoch: lease.epoch }).collect()
    }

    /// Tells a running turn that somebody wants it cancelled. Another turn of the session, which has another epoch, is left alone.
    pub fn cancel(&self, key: &SessionKey, epoch: i64) {
        if let Some(lease) = lock(&self.held).get(key).filter(|lease| lease.epoch == epoch) {
            lease.cancelled.cancel();
        }
    }

    /// Tells a running turn that its lease is no longer in force. A newer lease of the session is left alone.
    pub fn lose(&self, key: &SessionKey, epoch: i64) {
        if let Some(lease) = lock(&self.held).get(key).filter(|lease| lease.epoch <= epoch) {
            lease.lost.cancel();
        }
    }

    /// Takes in what a heartbeat sent at `sent` found. A lease that is another's, or gone, is lost.
    pub fn take_in(&self, sent: Instant, asked: &[Held], pulses: &[Pulse]) {
        let held = lock(&self.held);
        for Held { key, epoch } in asked {
            let Some(lease) = held.get(key).filter(|lease| lease.epoch == *epoch) else { continue };
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
        for lease in lock(&self.held).values() {
            if now.saturating_duration_since(*lock(&lease.renewed)) >= ttl {
                lease.lost.cancel();
            }
        }
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

    fn pulse(session: &str, mine: bool, renewed: bool, cancelled: bool) -> Pulse {
        Pulse { held: Held { key: key(session), epoch: 1 }, mine, renewed, cancelled }
    }

    #[test]
    fn a_lease_is_lost_when_it_is_anothers_gone_or_not_renewed_in_time() {
        let ttl = Duration::from_secs(10);
        let begun = Instant::now();
        let table: [(&str, &[Pulse], u64, bool); 5] = [
            ("renewed", &[pulse("s", true, true, false)], 14, false),
            ("busy, so not renewed, but young", &[pulse("s", true, false, false)], 9, false),
            ("busy, so not renewed, and old", &[pulse("s", true, false, false)], 10, true),
            ("another's", &[pulse("s", false, false, false)], 6, true),
            ("gone", &[], 6, true),
        ];
        for (what, pulses, now, lost) in table {
            let leases = Leases::default();
            let lease = leases.hold(&key("s"), 1, begun);
            leases.take_in(begun + Duration::from_secs(5), &leases.held(), pulses);
            leases.expire(ttl, begun + Duration::from_secs(now));
            assert_eq!(lease.lost().is_cancelled(), lost, "{what}");
        }
    }

    #[test]
    fn a_heartbeat_that_was_asked_for_an_older_lease_says_nothing_about_a_newer_one() {
        let leases = Leases::default();
        let old = leases.hold(&key("s"), 1, Instant::now());
        let asked = leases.held();
        let new = leases.hold(&key("s"), 2, Instant::now());
        assert!(old.lost().is_cancelled(), "two owners on one replica");
        leases.take_in(Instant::now(), &asked, &[]);
        assert!(!new.lost().is_cancelled());
        leases.forget(&key("s"), &old);
        assert!(leases.holds(&key("s"), 2));
    }

    #[test]
    fn a_newer_lease_of_the_session_ends_the_older_one() {
        for (first, second) in [(1, 2), (2, 1), (1, 1)] {
            let (leases, key) = (Leases::default(), key("s"));
            let (a, b) = (leases.hold(&key, first, Instant::now()), leases.hold(&key, second, Instant::now()));
            let lost = (a.lost().is_cancelled(), b.lost().is_cancelled());
            assert_eq!(lost, (first <= second, first > second), "{first} then {second}");
            assert!(leases.holds(&key, first.max(second)));
            leases.forget(&key, if first <= second { &a } else { &b });
            assert_eq!(leases.count(), 1, "what is lost takes nothing with it");
        }
    }

    #[test]
    fn a_doubt_lasts_until_it_is_cleared_or_its_lease_has_run_out() {
        let (leases, begun, ttl) = (Leases::default(), Instant::now(), Duration::from_secs(10));
        leases.doubt(&key("a"), begun);
        leases.doubt(&key("b"), begun + Duration::from_secs(5));
        assert_eq!(leases.doubts(ttl, begun + Duration::from_secs(9)), [key("a"), key("b")]);
        assert_eq!(leases.doubts(ttl, begun + Duration::from_secs(10)), [key("b")]);
        leases.is_clear(&key("b"));
        assert_eq!(leases.doubts(ttl, begun), []);
    }

    #[test]
    fn a_cancel_reaches_only_the_epoch_it_was_meant_for() {
        let leases = Leases::default();
        let lease = leases.hold(&key("s"), 2, Instant::now());
        leases.cancel(&key("s"), 1);
        assert!(!lease.cancelled().is_cancelled());
        leases.cancel(&key("s"), 2);
        assert!(lease.cancelled().is_cancelled());
    }

    #[test]
    fn a_lease_that_is_no_longer_in_force_is_lost_and_a_newer_one_is_not() {
        let leases = Leases::default();
        let lease = leases.hold(&key("s"), 2, Instant::now());
        leases.lose(&key("s"), 1);
        assert!(!lease.lost().is_cancelled());
        leases.lose(&key("s"), 2);
        assert!(lease.lost().is_cancelled());
    }

    #[test]
    fn a_cancel_reaches_the_turn_that_runs() {
        let leases = Leases::default();
        let (told, by_flag) = (leases.hold(&key("a"), 1, Instant::now()), leases.hold(&key("b"), 1, Instant::now()));
        leases.cancel(&key("a"), 1);
        leases.take_in(Instant::now(), &leases.held(), &[pulse("a", true, true, false), pulse("b", true, true, true)]);
        assert!(told.cancelled().is_cancelled());
        assert!(by_flag.cancelled().is_cancelled());
    }
}
