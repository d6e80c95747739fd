//! The deletion of a tenant: its sessions end as sessions do, then everything else of it goes.

use std::sync::Arc;

use crate::{
    model::{
        SessionKey, TenantDeletion, TenantId,
        command::{DeleteSession, Idempotency},
    },
    turn::{Error, engine::Engine},
};

/// Sessions that are looked for at once.
const ROUND: u32 = 32;

impl Engine {
    /// Begins the deletion of a tenant, unless one goes on. Its calls are refused here when this
    /// returns.
    pub async fn delete_tenant(
        self: &Arc<Self>,
        tenant: TenantId,
        asked_by: String,
    ) -> Result<TenantDeletion, Error> {
        self.supervised(async move |engine| {
            let deletion = engine.store.begin_erasure(&tenant, &asked_by).await?;
            tracing::info!(tenant.id = %tenant, caller = %asked_by, "tenant is being deleted");
            if let Err(error) = engine.quotas.read_limits().await {
                tracing::warn!(%error, "the deletion of a tenant cannot be seen here yet");
            }
            Ok(deletion)
        })
        .await
    }

    /// The newest deletion of a tenant. `None`: it was never deleted.
    pub async fn tenant_deletion(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<TenantDeletion>, Error> {
        Ok(self.store.erasure(tenant).await?)
    }

    /// Refuses what would give a tenant something that is being deleted.
    pub fn check_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        if self.quotas.is_deleted(tenant) {
            return Err(Error::TenantBeingDeleted(tenant.clone()));
        }
        Ok(())
    }

    /// Goes on with the deletions of tenants that no other replica works on. One that fails does not
    /// hold up the others; the first failure is returned.
    pub async fn erase_tenants(self: &Arc<Self>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for tenant in self.quotas.deleted_tenants().iter() {
            outcome = outcome.and(self.erase(tenant).await);
        }
        outcome
    }

    /// Does what can be done now, unless another replica works on it: deleted sessions stay for a
    /// while for those who follow them.
    async fn erase(self: &Arc<Self>, tenant: &TenantId) -> Result<(), Error> {
        if !self.store.hold_erasure(tenant).await? {
            return Ok(());
        }
        while !self.draining.is_cancelled() && self.erase_sessions(tenant).await? {
            if !self.store.hold_erasure(tenant).await? {
                return Ok(());
            }
        }
        self.store.erase(tenant).await?;
        if self.store.end_erasure(tenant).await? {
            tracing::info!(tenant.id = %tenant, "tenant deleted");
            self.quotas.read_limits().await?;
        }
        Ok(())
    }

    /// Ends some sessions and removes what ended ones left. False: there is none of either.
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

    /// Ends a session; one that is gone already is as well.
    async fn erase_session(self: &Arc<Self>, key: &SessionKey) -> Result<(), Error> {
        let command = DeleteSession {
            session: key.session.clone(),
            etag: None,
            idempotency: Idempotency::none(),
        };
        match self.delete_session(key.tenant.clone(), command).await {
            Ok(()) | Err(Error::SessionNotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
