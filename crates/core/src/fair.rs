//! A semaphore that is fair between tenants: calls hold units (slots or bytes), and other calls wait for them.
//!
//! Freed units go to the waiting tenant that holds the fewest units; among tenants that hold the same number, to the
//! one served least recently; and among its calls, to the oldest. In a large gate a tenant cannot take every unit, so
//! that some remain for other tenants ([`has_fair_room`]).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::model::{TenantId, quota::has_fair_room};

/// A fair semaphore with a fixed number of units.
#[derive(Debug)]
pub struct FairSemaphore {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: usize,
    by_tenant: HashMap<TenantId, usize>,
    next_ticket: u64,
    /// Number of calls served so far.
    served: u64,
    /// The value of `served` when each tenant was last served, kept for tenants that hold units or wait.
    last_served: HashMap<TenantId, u64>,
    /// By ticket number, oldest first.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    tenant: TenantId,
    units: usize,
    granted: oneshot::Sender<FairPermit>,
}

/// Units of a gate that a call holds. They are released on drop.
#[derive(Debug)]
pub struct FairPermit {
    gate: Arc<FairSemaphore>,
    tenant: TenantId,
    units: usize,
}

/// A place in the queue of a waiting call. Dropped with the call's future, which removes it from the queue.
struct Ticket<'a> {
    gate: &'a FairSemaphore,
    number: u64,
}

impl FairSemaphore {
    /// Creates a gate with `most` units, at least one.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), state: Mutex::default() })
    }

    /// Waits for one unit. The caller must limit the wait time and the number of waiting calls.
    pub async fn acquire(self: &Arc<Self>, tenant: &TenantId) -> FairPermit {
        self.acquire_many(tenant, 1).await
    }

    /// Waits for `units` units. A request for more units than the gate has takes all of them, so the call runs alone.
    pub async fn acquire_many(self: &Arc<Self>, tenant: &TenantId, units: usize) -> FairPermit {
        let units = units.clamp(1, self.most);
        loop {
            let (ticket, granted) = self.queue(tenant, units);
            self.grant();
            // The sender is dropped without sending only if its ticket was removed; then the call queues again.
            if let Ok(place) = granted.await {
                return place;
            }
            drop(ticket);
        }
    }

    /// Takes one unit without waiting. Returns `None` if none is free for this tenant.
    pub fn try_acquire(self: &Arc<Self>, tenant: &TenantId) -> Option<FairPermit> {
        let mut state = self.lock();
        if !state.fits(self.most, tenant, 1) {
            return None;
        }
        state.take(tenant, 1);
        drop(state);
        Some(self.place(tenant.clone(), 1))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, tenant: TenantId, units: usize) -> FairPermit {
        FairPermit { gate: Arc::clone(self), tenant, units }
    }

    fn queue(&self, tenant: &TenantId, units: usize) -> (Ticket<'_>, oneshot::Receiver<FairPermit>) {
        let (granted, receiver) = oneshot::channel();
        let mut state = self.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        let waiting = Waiting { tenant: tenant.clone(), units, granted };
        state.waiting.insert(number, waiting);
        let ticket = Ticket { gate: self, number };
        (ticket, receiver)
    }

    /// Hands free units to waiting calls.
    fn grant(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.take_next(self.most) else {
                return;
            };
            drop(state);
            // If the receiver is already dropped, the returned place is dropped too, which grants it again.
            drop(next.granted.send(self.place(next.tenant, next.units)));
        }
    }
}

impl State {
    fn held(&self, tenant: &TenantId) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or_default()
    }

    /// Whether `units` more fit for the tenant. A call may always take units of an empty gate, up to all of them.
    fn fits(&self, most: usize, tenant: &TenantId, units: usize) -> bool {
        let before_last = units - 1;
        let own = self.held(tenant) + before_last;
        self.all == 0 || has_fair_room(most, self.all + before_last, own)
    }

    fn take(&mut self, tenant: &TenantId, units: usize) {
        self.all += units;
        *self.by_tenant.entry(tenant.clone()).or_default() += units;
    }

    /// Takes the units for the next waiting call. Returns `None` if not enough are free. Calls of a tenant that already
    /// holds its share are skipped. A call that needs more units than are free is not skipped; otherwise it could
    /// starve.
    fn take_next(&mut self, most: usize) -> Option<Waiting> {
        let mut order: Vec<(usize, u64, u64)> = self
            .waiting
            .iter()
            .map(|(number, Waiting { tenant, .. })| {
                let last = self.last_served.get(tenant).copied().unwrap_or_default();
                (self.held(tenant), last, *number)
            })
            .collect();
        order.sort_unstable();
        for (_, _, number) in order {
            let waiting = self.waiting.get(&number)?;
            if self.fits(most, &waiting.tenant, waiting.units) {
                let next = self.waiting.remove(&number)?;
                self.take(&next.tenant, next.units);
                self.note_served(&next.tenant);
                return Some(next);
            }
            if self.all + waiting.units > most {
                return None;
            }
        }
        None
    }

    fn note_served(&mut self, tenant: &TenantId) {
        self.served += 1;
        self.last_served.insert(tenant.clone(), self.served);
        let wait: HashSet<&TenantId> = self.waiting.values().map(|it| &it.tenant).collect();
        self.last_served.retain(|tenant, _| wait.contains(tenant) || self.by_tenant.contains_key(tenant));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.gate.lock().waiting.remove(&self.number);
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.all -= self.units;
        if let Some(own) = state.by_tenant.get_mut(&self.tenant) {
            *own -= self.units;
            if *own == 0 {
                state.by_tenant.remove(&self.tenant);
            }
        }
        drop(state);
        self.gate.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_next_place_goes_to_the_tenant_that_holds_the_fewest() {
        let gate = FairSemaphore::new(2);
        let [busy, late] = ["busy", "late"].map(TenantId::new);
        let first = gate.acquire(&busy).await;
        let second = gate.acquire(&busy).await;
        let mut third = Box::pin(gate.acquire(&busy));
        let mut other = Box::pin(gate.acquire(&late));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        let other = other.now_or_never().expect("a free place");
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        drop(third.now_or_never().expect("a free place"));
        drop(other);
        let state = gate.lock();
        assert_eq!((state.all, state.by_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_single_place_goes_round_among_the_tenants_that_wait() {
        let gate = FairSemaphore::new(1);
        let [busy, late, later] = ["busy", "late", "later"].map(TenantId::new);
        let mut place = gate.acquire(&busy).await;
        let mut calls: Vec<_> =
            [&busy, &busy, &late, &late, &later].map(|tenant| Box::pin(gate.acquire(tenant))).into();
        for call in &mut calls {
            assert!(call.as_mut().now_or_never().is_none());
        }
        for next in [&late, &later, &busy, &late, &busy] {
            drop(place);
            let (at, granted) = calls
                .iter_mut()
                .enumerate()
                .find_map(|(at, call)| Some((at, call.as_mut().now_or_never()?)))
                .expect("a free place");
            drop(calls.remove(at));
            assert_eq!(granted.tenant, *next);
            place = granted;
        }
        drop(place);
        drop(gate.acquire(&later).await);
        let known = gate.lock().last_served.len();
        assert_eq!(known, 1, "no tenant is remembered that is gone");
    }

    #[tokio::test]
    async fn a_call_that_leaves_while_it_waits_keeps_no_place() {
        let gate = FairSemaphore::new(1);
        let tenant = TenantId::new("tenant");
        let held = gate.acquire(&tenant).await;
        let mut waiting = Box::pin(gate.acquire(&tenant));
        assert!(waiting.as_mut().now_or_never().is_none());
        let mut granted = Box::pin(gate.acquire(&tenant));
        assert!(granted.as_mut().now_or_never().is_none());
        drop(waiting);
        drop(held);
        // The place was granted to this call, but the call is dropped before it is polled.
        drop(granted);
        assert!(gate.acquire(&tenant).now_or_never().is_some());
    }

    #[tokio::test]
    async fn one_tenant_leaves_places_to_others_where_there_are_many() {
        let gate = FairSemaphore::new(20);
        let [busy, late] = ["busy", "late"].map(TenantId::new);
        let places: Vec<_> = std::iter::from_fn(|| gate.try_acquire(&busy)).collect();
        assert_eq!(places.len(), 18);
        assert!(gate.acquire(&busy).now_or_never().is_none());
        assert!(gate.acquire(&late).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_call_that_needs_much_is_alone_and_is_not_passed_by() {
        let gate = FairSemaphore::new(100);
        let [large, small] = ["large", "small"].map(TenantId::new);
        let first = gate.acquire_many(&small, 30).await;
        let mut all = Box::pin(gate.acquire_many(&large, 500));
        assert!(all.as_mut().now_or_never().is_none());
        let mut second = Box::pin(gate.acquire_many(&small, 30));
        assert!(second.as_mut().now_or_never().is_none(), "it came later");
        drop(first);
        let all = all.now_or_never().expect("nothing else is held");
        assert!(second.as_mut().now_or_never().is_none());
        drop(all);
        assert!(second.now_or_never().is_some());
    }
}
