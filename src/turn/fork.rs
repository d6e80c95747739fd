//! ForkSession: a session of its own from what another one said up to a point.

use std::sync::Arc;

use super::{Engine, Error, sessions::new_session_id};
use crate::{
    model::{SessionKey, TenantId, command::ForkSession},
    store::session::Session,
};

impl Engine {
    /// Forks a session, or returns the fork that the same request made before. What lies behind a seq never changes, so that neither
    /// the reads nor the copy need a lock: a running turn goes on meanwhile.
    pub async fn fork(self: &Arc<Self>, tenant: TenantId, command: ForkSession) -> Result<Session, Error> {
        let engine = Arc::clone(self);
        self.supervised(async move { engine.try_fork(tenant, command).await }).await
    }

    async fn try_fork(&self, tenant: TenantId, command: ForkSession) -> Result<Session, Error> {
        let ForkSession { session, at, new, idempotency } = command;
        let id = new.unwrap_or_else(|| new_session_id(&tenant, idempotency.request.as_ref()));
        let (source, fork) = (SessionKey::new(tenant.clone(), session), SessionKey::new(tenant, id));
        if self.store.session(&fork).await?.is_some() {
            // Made by this request, whatever became of its source since.
            self.made_by(&fork, &idempotency).await?;
            return self.session(&fork).await;
        }
        let last = self.session(&source).await?.last_seq;
        let at = at.unwrap_or(last);
        if at > last {
            return Err(Error::AtSeqAhead { last });
        }
        let open = self.store.open_calls_at(&source, at).await?;
        if !open.is_empty() {
            return Err(Error::TranscriptOpen(open));
        }
        if !self.store.fork(&source, at, &fork.session, &idempotency).await? {
            self.session(&source).await?;
            self.made_by(&fork, &idempotency).await?;
        }
        self.session(&fork).await
    }
}
