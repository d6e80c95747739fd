//! Decides which operation gets the next connection of a pool. Operations of running turns have priority over new
//! requests, except that one connection in [`NEW_REQUEST_INTERVAL`] goes to a new request. New requests are served round-robin by
//! tenant. If the database refuses further connections, the number of permits is reduced.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::Error;
use crate::model::TenantId;

/// One of this many connections goes to a new request, even if operations of running turns wait. A larger share would
/// start more turns than can be finished.
const NEW_REQUEST_INTERVAL: u32 = 20;
/// The service rate of a tenant is known after this many served requests.
const PACE_KNOWN: u64 = 8;
/// How long no further connection is tried after the database refused one because it was at its limit.
const REFUSED_BACKOFF: Duration = Duration::from_secs(1);

/// The queue of one pool.
#[derive(Debug)]
pub(super) struct ConnectionQueue {
    waiting: Mutex<PermitQueue>,
}

#[derive(Debug)]
struct PermitQueue {
    /// Maximum number of connections.
    max_connections: usize,
    /// Free permits. 0 while an operation waits.
    free: usize,
    /// Permits withheld because the database was at its connection limit.
    withheld: usize,
    /// When a withheld permit may be tried again.
    retried_at: Instant,
    tickets: u64,
    /// Waiting operations of running turns, by ticket.
    running: BTreeMap<u64, Waiter>,
    /// New requests per tenant. No line is empty.
    new: BTreeMap<TenantId, TenantQueue>,
    /// The tenant that was served last.
    last: Option<TenantId>,
    /// Operations of running turns that were served since then.
    served_ahead: u32,
}

/// Waiting new requests of one tenant.
#[derive(Debug, Default)]
struct TenantQueue {
    waiters: BTreeMap<u64, Waiter>,
    /// Number of requests served since the line was empty.
    served: u64,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    /// The line's `served` count when this request joined.
    served: u64,
    granted: oneshot::Sender<Permit>,
}

/// A permit for one connection of the pool, held until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    queue: Arc<ConnectionQueue>,
    /// Whether the permit is withheld and must not go to the next operation.
    is_withheld: bool,
}

impl Permit {
    fn of(queue: &Arc<ConnectionQueue>) -> Self {
        Self { queue: Arc::clone(queue), is_withheld: false }
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
struct Place<'q> {
    queue: &'q ConnectionQueue,
    tenant: Option<&'q TenantId>,
    ticket: u64,
    granted: oneshot::Receiver<Permit>,
}

impl ConnectionQueue {
    /// Creates the queue of a pool with this many connections.
    pub(super) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(PermitQueue {
                max_connections: connections,
                free: connections,
                withheld: 0,
                retried_at: Instant::now(),
                tickets: 0,
                running: BTreeMap::new(),
                new: BTreeMap::new(),
                last: None,
                served_ahead: 0,
            }),
        })
    }

    /// Waits for a permit: in the tenant's line for a new request, otherwise ahead of all lines.
    pub(super) async fn enter(self: &Arc<Self>, tenant: Option<&TenantId>) -> Result<Permit, Error> {
        let mut place = {
            let mut waiting = self.lock();
            if waiting.free > 0 {
                waiting.free -= 1;
                return Ok(Permit::of(self));
            }
            if waiting.withheld > 0 && Instant::now() >= waiting.retried_at {
                waiting.withheld -= 1;
                waiting.retried_at = Instant::now() + REFUSED_BACKOFF;
                return Ok(Permit::of(self));
            }
            let (ticket, granted) = waiting.join(tenant);
            Place { queue: self, tenant, ticket, granted }
        };
        (&mut place.granted).await.map_err(|_| Error::Busy)
    }

    /// Withholds the permit of a connection that the database refused, and all other free permits except those for idle
    /// connections. They are granted again later, one at a time. Returns the permit if it is the only one, because
    /// without it waiting operations would never be served.
    pub(super) fn withhold(&self, mut permit: Permit, idle: usize) -> Option<Permit> {
        let mut waiting = self.lock();
        let surplus = waiting.free.saturating_sub(idle);
        waiting.free -= surplus;
        waiting.withheld += surplus;
        waiting.retried_at = Instant::now() + REFUSED_BACKOFF;
        let others = waiting.max_connections - waiting.withheld - 1;
        if others == 0 {
            return Some(permit);
        }
        waiting.withheld += 1;
        drop(waiting);
        permit.is_withheld = true;
        None
    }

    /// Records that the database accepted another connection, so that the next withheld permit may be tried at once.
    pub(super) fn record_accepted(&self) {
        self.lock().retried_at = Instant::now();
    }

    /// Returns the number of connections currently allowed.
    pub(super) fn capacity(&self) -> usize {
        let waiting = self.lock();
        waiting.max_connections - waiting.withheld
    }

    /// Estimates how long a new request of a tenant would wait: as long as the oldest request in its line has waited,
    /// or longer if more requests wait now than were served in that time.
    pub(super) fn expected_wait(&self, tenant: &TenantId) -> Duration {
        let waiting = self.lock();
        let Some(line) = waiting.new.get(tenant) else {
            return Duration::ZERO;
        };
        let Some((_, oldest)) = line.waiters.first_key_value() else {
            return Duration::ZERO;
        };
        let waited = oldest.since.elapsed();
        let served = line.served - oldest.served;
        if served < PACE_KNOWN {
            return waited;
        }
        let growth = line.waiters.len() as f64 / served as f64;
        waited.mul_f64(growth.max(1.0))
    }

    /// Returns the number of waiting operations.
    pub(super) fn len(&self) -> usize {
        let waiting = self.lock();
        let new = waiting.new.values().map(|line| line.waiters.len());
        waiting.running.len() + new.sum::<usize>()
    }

    fn lock(&self) -> MutexGuard<'_, PermitQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitQueue {
    fn join(&mut self, tenant: Option<&TenantId>) -> (u64, oneshot::Receiver<Permit>) {
        let (granted, receiver) = oneshot::channel();
        let ticket = self.tickets;
        self.tickets += 1;
        let (waiters, served) = match tenant {
            None => (&mut self.running, 0),
            Some(tenant) => {
                let line = self.new.entry(tenant.clone()).or_default();
                (&mut line.waiters, line.served)
            }
        };
        let waiter = Waiter { since: Instant::now(), served, granted };
        waiters.insert(ticket, waiter);
        (ticket, receiver)
    }

    /// Removes and returns the next operation to serve.
    fn next(&mut self) -> Option<Waiter> {
        let is_ahead = self.new.is_empty() || self.served_ahead + 1 < NEW_REQUEST_INTERVAL;
        if is_ahead && let Some((_, waiter)) = self.running.pop_first() {
            self.served_ahead = if self.new.is_empty() { 0 } else { self.served_ahead + 1 };
            return Some(waiter);
        }
        self.served_ahead = 0;
        self.next_new()
    }

    fn next_new(&mut self) -> Option<Waiter> {
        let after = |last| self.new.range((Bound::Excluded(last), Bound::Unbounded));
        let following = self.last.as_ref().and_then(|last| after(last).next());
        let (tenant, _) = following.or_else(|| self.new.first_key_value())?;
        let tenant = tenant.clone();
        let line = self.new.get_mut(&tenant)?;
        let (_, waiter) = line.waiters.pop_first()?;
        line.served += 1;
        if line.waiters.is_empty() {
            self.new.remove(&tenant);
        }
        self.last = Some(tenant);
        Some(waiter)
    }

    fn leave(&mut self, tenant: Option<&TenantId>, ticket: u64) {
        let Some(tenant) = tenant else {
            self.running.remove(&ticket);
            return;
        };
        if let Some(line) = self.new.get_mut(tenant) {
            line.waiters.remove(&ticket);
            if line.waiters.is_empty() {
                self.new.remove(tenant);
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // If a permit was granted concurrently, it is dropped with the receiver and passed on.
        self.queue.lock().leave(self.tenant, self.ticket);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_withheld {
            return;
        }
        let next = {
            let mut waiting = self.queue.lock();
            let next = waiting.next();
            if next.is_none() {
                waiting.free += 1;
            }
            next
        };
        if let Some(waiter) = next {
            // If the receiver is already dropped, the permit is dropped too and passed on.
            let _ = waiter.granted.send(Self::of(&self.queue));
        }
    }
}

#[cfg(test)]
mod tests;
