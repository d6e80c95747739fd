//! The deletion of a tenant: its sessions are deleted like any session, then all its other rows are
//! removed.

use std::sync::Arc;

use crate::{
    model::{
        SessionKey, TenantDeletion, TenantId,
        command::{DeleteSession, Idempotency},
    },
    turn::{
        Error,
        engine::{SessionCommands, supervised},
    },
};

/// Sessions read by one query.
const ROUND: u32 = 32;

impl SessionCommands {
    /// Begins the deletion of a tenant, unless one is in progress. When this returns, this replica
    /// refuses the tenant's calls.
    pub async fn delete_tenant(self: &Arc<Self>, tenant: TenantId, asked_by: String) -> Result<TenantDeletion, Error> {
        supervised(&self.capacity, self, async move |sessions| {
            let deletion = sessions.store.begin_erasure(&tenant, &asked_by).await?;
            tracing::info!(tenant.id = %tenant, caller = %asked_by, "tenant is being deleted");
            if let Err(error) = sessions.capacity.quotas.read_limits().await {
                tracing::warn!(%error, "failed to reload tenant limits; this replica does not refuse the deleted tenant yet");
            }
            Ok(deletion)
        })
        .await
    }

    /// Continues the deletions of tenants that no other replica works on. A failed deletion does
    /// not hold up the others. Returns the first error.
    pub async fn erase_tenants(self: &Arc<Self>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for tenant in self.capacity.quotas.deleted_tenants().iter() {
            outcome = outcome.and(self.erase(tenant).await);
        }
        outcome
    }

    /// Deletes what can be deleted now, unless another replica works on it. The rows of deleted
    /// sessions stay for a while for their readers.
    async fn erase(self: &Arc<Self>, tenant: &TenantId) -> Result<(), Error> {
        if !self.store.hold_erasure(tenant).await? {
            return Ok(());
        }
        while !self.capacity.draining.is_cancelled() && self.erase_sessions(tenant).await? {
            if !self.store.hold_erasure(tenant).await? {
                return Ok(());
            }
        }
        self.store.erase(tenant).await?;
        if self.store.end_erasure(tenant).await? {
            tracing::info!(tenant.id = %tenant, "tenant deleted");
            self.capacity.quotas.read_limits().await?;
        }
        Ok(())
    }

    /// Deletes some sessions, and purges some that are already deleted. Returns `false` if there
    /// are neither.
    async fn erase_sessions(self: &Arc<Self>, tenant: &TenantId) -> Result<bool, Error> {
        let sessions = self.store.sessions_to_erase(tenant, ROUND).await?;
        for key in &sessions {
            self.erase_session(key).await?;
        }
        let ended = self.store.sessions_to_purge(tenant, ROUND).await?;
        for key in &ended {
            self.store.purge(key).await?;
        }
        Ok(!sessions.is_empty() || !ended.is_empty())
    }

    /// Deletes a session. Succeeds if it no longer exists.
    async fn erase_session(self: &Arc<Self>, key: &SessionKey) -> Result<(), Error> {
        let command = DeleteSession { session: key.session.clone(), etag: None, idempotency: Idempotency::none() };
        match self.delete_session(key.tenant.clone(), command).await {
            Ok(()) | Err(Error::SessionNotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
