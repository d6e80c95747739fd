//! Who gets the next connection of a pool. What runs goes ahead of new requests, but for one
//! connection in [`NEW_EVERY`]; among new requests each tenant has a turn. Where the database has no
//! room for as many connections as there may be, there are fewer rights than that.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::Error;
use crate::model::TenantId;

/// Of so many connections one goes to a new request, however many operations of what runs wait. More
/// for new requests would begin more turns than can be finished.
const NEW_EVERY: u32 = 20;
/// After so many served requests of a tenant its pace is known.
const PACE_KNOWN: u64 = 8;
/// For how long no further connection is tried after the database had no room for one.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The queue of one pool.
#[derive(Debug)]
pub(super) struct ConnectionQueue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Most connections.
    most: usize,
    /// Connections that nobody has; none while somebody waits.
    free: usize,
    /// Connections that the database had no room for.
    withheld: usize,
    /// When another one of those may be tried.
    retried_at: Instant,
    tickets: u64,
    /// Operations of what runs, by their tickets.
    running: BTreeMap<u64, Waiter>,
    /// Lines of new requests. None is empty.
    new: BTreeMap<TenantId, Line>,
    /// The tenant that had the last turn.
    last: Option<TenantId>,
    /// Operations of what runs that went ahead since then.
    went_ahead: u32,
}

/// New requests of one tenant.
#[derive(Debug, Default)]
struct Line {
    waiters: BTreeMap<u64, Waiter>,
    /// How many got a connection since the line was empty.
    served: u64,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    /// How many of its line were served before it came.
    served: u64,
    granted: oneshot::Sender<Permit>,
}

/// The right to one connection of the pool, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    queue: Arc<ConnectionQueue>,
    /// It was taken back, and does not go to the next operation.
    is_withheld: bool,
}

impl Permit {
    fn of(queue: &Arc<ConnectionQueue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            is_withheld: false,
        }
    }
}

/// A place in the queue, which is left when this is dropped.
#[derive(Debug)]
struct Place<'q> {
    queue: &'q ConnectionQueue,
    tenant: Option<&'q TenantId>,
    ticket: u64,
    granted: oneshot::Receiver<Permit>,
}

impl ConnectionQueue {
    /// The queue of a pool with so many connections.
    pub(super) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting {
                most: connections,
                free: connections,
                withheld: 0,
                retried_at: Instant::now(),
                tickets: 0,
                running: BTreeMap::new(),
                new: BTreeMap::new(),
                last: None,
                went_ahead: 0,
            }),
        })
    }

    /// Waits for a connection: in the line of a tenant with a new request, else ahead of all lines.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: Option<&TenantId>,
    ) -> Result<Permit, Error> {
        let place = {
            let mut waiting = self.lock();
            if waiting.free > 0 {
                waiting.free -= 1;
                return Ok(Permit::of(self));
            }
            if waiting.withheld > 0 && Instant::now() >= waiting.retried_at {
                waiting.withheld -= 1;
                waiting.retried_at = Instant::now() + NO_ROOM;
                return Ok(Permit::of(self));
            }
            let (ticket, granted) = waiting.join(tenant);
            Place {
                queue: self,
                tenant,
                ticket,
                granted,
            }
        };
        place.granted().await
    }

    /// Takes back the right to a connection that the database had no room for, and all further rights
    /// that are free, but for those to the idle connections. They are granted again one by one, later.
    /// Returns the right if it is the only one, without which the others would wait for nothing.
    pub(super) fn withhold(&self, mut permit: Permit, idle: usize) -> Option<Permit> {
        let mut waiting = self.lock();
        let surplus = waiting.free.saturating_sub(idle);
        waiting.free -= surplus;
        waiting.withheld += surplus;
        waiting.retried_at = Instant::now() + NO_ROOM;
        let others = waiting.most - waiting.withheld - 1;
        if others == 0 {
            return Some(permit);
        }
        waiting.withheld += 1;
        drop(waiting);
        permit.is_withheld = true;
        None
    }

    /// Notes that the database had room for another connection: there may be more.
    pub(super) fn has_room(&self) {
        self.lock().retried_at = Instant::now();
    }

    /// How many connections there may be for now.
    pub(super) fn capacity(&self) -> usize {
        let waiting = self.lock();
        waiting.most - waiting.withheld
    }

    /// How long a new request of a tenant would wait: as long as the oldest in its line has waited, or
    /// longer where more wait now than were served meanwhile.
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

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        let waiting = self.lock();
        let new = waiting.new.values().map(|line| line.waiters.len());
        waiting.running.len() + new.sum::<usize>()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
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
        let waiter = Waiter {
            since: Instant::now(),
            served,
            granted,
        };
        waiters.insert(ticket, waiter);
        (ticket, receiver)
    }

    /// Who is next; it waits no more.
    fn next(&mut self) -> Option<Waiter> {
        let is_ahead = self.new.is_empty() || self.went_ahead + 1 < NEW_EVERY;
        if is_ahead && let Some((_, waiter)) = self.running.pop_first() {
            self.went_ahead = if self.new.is_empty() {
                0
            } else {
                self.went_ahead + 1
            };
            return Some(waiter);
        }
        self.went_ahead = 0;
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

impl Place<'_> {
    async fn granted(mut self) -> Result<Permit, Error> {
        (&mut self.granted).await.map_err(|_| Error::Busy)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // A permit that came meanwhile is dropped with the receiver, which passes it on.
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
            // One that has just left drops the permit, which passes it on.
            let _ = waiter.granted.send(Self::of(&self.queue));
        }
    }
}

#[cfg(test)]
mod tests;
