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

/// The turns in this replica's memory. Only these are kept alive: never «all rows that carry my name».
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<BTreeMap<SessionKey, Arc<Lease>>>,
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

    fn key() -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new("s"))
    }

    #[test]
    fn a_newer_lease_of_the_session_ends_the_older_one() {
        for (first, second) in [(1, 2), (2, 1), (1, 1)] {
            let leases = Leases::default();
            let (a, b) = (leases.hold(&key(), first, Instant::now()), leases.hold(&key(), second, Instant::now()));
            let lost = (a.lost().is_cancelled(), b.lost().is_cancelled());
            assert_eq!(lost, (first <= second, first > second), "{first} then {second}");
            assert!(leases.holds(&key(), first.max(second)));
            leases.forget(&key(), if first <= second { &a } else { &b });
            assert_eq!(leases.count(), 1, "what is lost takes nothing with it");
        }
    }

    #[test]
    fn a_cancel_reaches_only_the_epoch_it_was_meant_for() {
        let leases = Leases::default();
        let lease = leases.hold(&key(), 2, Instant::now());
        leases.cancel(&key(), 1);
        assert!(!lease.cancelled().is_cancelled());
        leases.cancel(&key(), 2);
        assert!(lease.cancelled().is_cancelled());
    }
}
