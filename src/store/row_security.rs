//! Row-security scopes: which tenants' rows statements may reach. Work for a tenant reaches only that tenant's rows,
//! and the service's own work reaches all. With row security the database enforces this: a statement without a tenant
//! condition finds no rows of other tenants, and a statement in a task without a scope fails.

use std::future::Future;

use futures_util::future::Either;

use super::AdmittedAt;
use crate::model::TenantId;

tokio::task_local! {
    static CURRENT: Reach;
}

/// The tenants whose rows a statement may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All tenants: the service's own work.
    All,
    /// One tenant.
    Tenant(TenantId),
}

impl Reach {
    /// The scope of the current task. Returns `None` if none is set.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs `doing` in this scope.
    pub fn scope<F: Future>(self, doing: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, doing)
    }

    /// Runs `doing` in the current scope and with the current admission time, even if it is spawned as another task.
    pub fn in_current_scope<F: Future>(doing: F) -> impl Future<Output = F::Output> {
        let current = Self::current();
        let admitted = AdmittedAt(AdmittedAt::current());
        let doing = admitted.scope(doing);
        // An `async` block would have space for `doing` once per arm.
        match current {
            Some(reach) => Either::Left(reach.scope(doing)),
            None => Either::Right(doing),
        }
    }
}
