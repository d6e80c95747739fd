//! Whose rows statements may reach. What is done for a tenant reaches that tenant's alone, and the
//! service's own work all. With row security the database holds statements to it: one that forgot to
//! name its tenant finds nothing of the others.

use crate::model::TenantId;

tokio::task_local! {
    static CURRENT: Reach;
}

/// Whose rows a statement may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// Those of every tenant: the service's own work.
    #[default]
    All,
    /// Those of one tenant.
    Tenant(TenantId),
}

impl Reach {
    /// That of what is being done. A task that is spawned for it has to be given it.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Does something within this reach.
    pub async fn scope<F: Future>(self, doing: F) -> F::Output {
        CURRENT.scope(self, doing).await
    }

    pub(super) fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::All => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }
}
