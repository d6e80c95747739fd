//! Bytes that this replica has written for tenants with a storage limit since the last report: the size of the
//! parameters of their transactions, counted before these are sent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Error;
use crate::model::TenantId;

/// Written bytes by tenant. Only followed tenants are counted.
#[derive(Debug, Clone, Default)]
pub struct WrittenBytes {
    by_tenant: Arc<Mutex<HashMap<TenantId, i64>>>,
}

impl WrittenBytes {
    /// Starts to count what is written for a tenant.
    pub fn follow(&self, tenant: &TenantId) {
        self.lock().entry(tenant.clone()).or_default();
    }

    /// Stops counting for a tenant.
    pub fn forget(&self, tenant: &TenantId) {
        self.lock().remove(tenant);
    }

    /// Whether a tenant's bytes are counted.
    pub(super) fn follows(&self, tenant: &TenantId) -> bool {
        self.lock().contains_key(tenant)
    }

    /// Adds bytes. A negative number corrects the count.
    pub fn add(&self, tenant: &TenantId, bytes: i64) {
        if let Some(written) = self.lock().get_mut(tenant) {
            *written = written.saturating_add(bytes);
        }
    }

    /// Returns the bytes of a tenant that are not reported yet.
    pub fn of(&self, tenant: &TenantId) -> i64 {
        self.lock().get(tenant).copied().unwrap_or_default()
    }

    /// Returns the bytes of all tenants, to be reported and then subtracted with [`Self::add`].
    pub fn unreported(&self) -> Vec<(TenantId, i64)> {
        let mut all: Vec<_> = self.lock().iter().map(|(tenant, bytes)| (tenant.clone(), *bytes)).collect();
        all.retain(|(_, bytes)| *bytes != 0);
        all.sort_unstable();
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, i64>> {
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are counted before they are written.
pub(super) struct Counting<'a> {
    counted: Option<(&'a WrittenBytes, &'a TenantId, i64)>,
}

impl<'a> Counting<'a> {
    pub(super) fn of(written: &'a WrittenBytes, tenant: Option<&'a TenantId>, bytes: i64) -> Self {
        let counted = tenant.map(|tenant| (written, tenant, bytes));
        if let Some((written, tenant, bytes)) = counted {
            written.add(tenant, bytes);
        }
        Self { counted }
    }

    /// Subtracts the bytes if the database reported that the statement failed.
    pub(super) fn settled<T>(self, done: Result<T, Error>) -> Result<T, Error> {
        let refused = done.as_ref().is_err_and(|error| !error.spoils_connection());
        if let Some((written, tenant, bytes)) = self.counted.filter(|_| refused) {
            written.add(tenant, -bytes);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tenants_that_are_followed_are_counted() {
        let written = WrittenBytes::default();
        let [limited, other] = ["limited", "other"].map(TenantId::new);
        written.follow(&limited);
        written.add(&limited, 10);
        written.add(&limited, 5);
        written.add(&other, 10);
        assert_eq!((written.of(&limited), written.of(&other)), (15, 0));
        assert_eq!(written.unreported(), [(limited.clone(), 15)]);
        written.add(&limited, -15);
        assert_eq!(written.unreported(), []);
        written.forget(&limited);
        written.add(&limited, 1);
        assert_eq!(written.of(&limited), 0);
    }
}
