//! A pool of units that all tenants share, such as request slots or bytes of memory. A request for units is
//! rejected if fewer units are free, or if the tenant would exceed its fair share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::model::{TenantId, quota::has_fair_room};

/// A pool with a fixed number of units.
#[derive(Debug)]
pub(super) struct TenantPool {
    capacity: usize,
    /// Whether there can be more than one tenant.
    is_shared: bool,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// Units taken from a pool by a tenant. Dropping them gives them back.
#[derive(Debug)]
pub(super) struct PoolPermit {
    room: Arc<TenantPool>,
    tenant: TenantId,
    units: usize,
}

impl TenantPool {
    /// Creates a pool of `most` units. `is_shared` is true if there can be more than one tenant.
    pub(super) fn new(most: usize, is_shared: bool) -> Arc<Self> {
        Arc::new(Self { capacity: most, is_shared, taken: Mutex::default() })
    }

    /// Takes one unit. Returns `None` if it does not fit.
    pub(super) fn try_acquire(self: &Arc<Self>, tenant: &TenantId) -> Option<PoolPermit> {
        let mut place = self.empty_permit(tenant);
        place.try_grow(1).then_some(place)
    }

    /// A permit without units; see [`PoolPermit::try_grow`].
    pub(super) fn empty_permit(self: &Arc<Self>, tenant: &TenantId) -> PoolPermit {
        PoolPermit { room: Arc::clone(self), tenant: tenant.clone(), units: 0 }
    }

    fn take(&self, tenant: &TenantId, units: usize) -> bool {
        let Some(before_last) = units.checked_sub(1) else {
            return true;
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_tenant.get(tenant).copied().unwrap_or_default();
        let share = if self.is_shared { own + before_last } else { 0 };
        if !has_fair_room(self.capacity, taken.all + before_last, share) {
            return false;
        }
        taken.all += units;
        *taken.by_tenant.entry(tenant.clone()).or_default() += units;
        true
    }

    fn release(&self, tenant: &TenantId, units: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= units;
        if let Some(own) = taken.by_tenant.get_mut(tenant) {
            *own -= units;
            if *own == 0 {
                taken.by_tenant.remove(tenant);
            }
        }
    }
}

impl PoolPermit {
    /// The tenant that holds the units.
    pub(super) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Takes more units. Returns false, and takes none, if they do not fit.
    pub(super) fn try_grow(&mut self, units: usize) -> bool {
        let fits = self.room.take(&self.tenant, units);
        if fits {
            self.units += units;
        }
        fits
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.room.release(&self.tenant, self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_again_and_one_tenant_leaves_some_to_others() {
        let room = TenantPool::new(100, true);
        let tenant = TenantId::new;
        let mut places: Vec<PoolPermit> = std::iter::from_fn(|| room.try_acquire(&tenant("busy"))).collect();
        assert_eq!(places.len(), 90);
        assert!(room.try_acquire(&tenant("late")).is_some());
        assert!(room.try_acquire(&tenant("busy")).is_none());
        places.pop();
        assert!(room.try_acquire(&tenant("busy")).is_some());
        drop(places);
        let taken = room.taken.lock().unwrap();
        assert_eq!((taken.all, taken.by_tenant.len()), (0, 0));
    }

    #[test]
    fn the_only_tenant_takes_all_places() {
        let room = TenantPool::new(100, false);
        let tenant = TenantId::new("default");
        let places: Vec<PoolPermit> = std::iter::from_fn(|| room.try_acquire(&tenant)).collect();
        assert_eq!(places.len(), 100);
    }

    #[test]
    fn a_place_grows_up_to_the_fair_share_of_its_tenant() {
        let room = TenantPool::new(1_000, true);
        let [busy, late] = ["busy", "late"].map(TenantId::new);
        let mut place = room.try_acquire(&busy).unwrap();
        assert!(place.try_grow(0) && place.try_grow(899));
        assert!(!place.try_grow(1) && !place.try_grow(1_000));
        let mut other = room.try_acquire(&late).unwrap();
        assert!(other.try_grow(80));
        drop((place, other));
        assert!(room.try_acquire(&busy).unwrap().try_grow(800));
        assert_eq!(room.taken.lock().unwrap().all, 0);
    }
}
