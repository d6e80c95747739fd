//! Whose rows statements may reach. What is done for a tenant reaches that tenant's alone, and the
//! service's own work all. With row security the database holds statements to it: one that forgot to
//! name its tenant finds nothing of the others, and one in a task that does not say its reach fails.

use std::future::Future;

use super::AdmittedAt;
use crate::model::TenantId;

tokio::task_local! {
    static CURRENT: Reach;
}

/// Whose rows a statement may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Those of every tenant: the service's own work.
    All,
    /// Those of one tenant.
    Tenant(TenantId),
}

impl Reach {
    /// That of what is being done. `None` where it does not say.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Does something within this reach.
    pub async fn scope<F: Future>(self, doing: F) -> F::Output {
        CURRENT.scope(self, doing).await
    }

    /// Does something, in a task of its own too, within the reach of what is being done now, and as
    /// admitted by the same call.
    pub fn kept<F: Future>(doing: F) -> impl Future<Output = F::Output> {
        let current = Self::current();
        let admitted = AdmittedAt(AdmittedAt::current());
        let doing = admitted.scope(doing);
        async move {
            match current {
                Some(reach) => reach.scope(doing).await,
                None => doing.await,
            }
        }
    }
}
