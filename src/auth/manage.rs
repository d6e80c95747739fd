//! Creates, lists and revokes API keys.

use std::time::Duration;

use uuid::Uuid;

use super::{Auth, error::Error, secret};
use crate::{
    model::{Access, ApiKey, Principal, TenantId},
    store::api_key::NewKey,
};

/// Maximum number of live keys of a tenant. Two are enough to rotate; this allows one per host.
pub const MAX_KEYS: i64 = 100;

/// The parameters of a new key.
#[derive(Debug, Clone)]
pub struct CreateKey {
    /// The tenant whose data the key gives access to. `None` for the caller's tenant.
    pub tenant: Option<TenantId>,
    pub access: Access,
    /// A name, to tell the key from others.
    pub name: String,
    /// Time until the key expires. `None` for never.
    pub ttl: Option<Duration>,
}

/// A new key and its secret, which is stored nowhere else.
#[derive(Clone)]
pub struct CreatedKey {
    pub key: ApiKey,
    /// The text of the key.
    pub secret: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CreatedKey").field(&self.key).finish()
    }
}

impl Auth {
    /// Creates a key, which this replica accepts when this returns.
    pub async fn create_key(&self, caller: &Principal, wanted: CreateKey) -> Result<CreatedKey, Error> {
        let tenant = tenant_of(caller, wanted.tenant)?;
        if wanted.access > caller.access {
            let needed = wanted.access;
            return Err(Error::Forbidden { needed });
        }
        let (secret, hash) = secret::generate()?;
        let new = NewKey {
            id: &Uuid::now_v7().to_string(),
            tenant: &tenant,
            hash: hash.0,
            access: wanted.access,
            name: &wanted.name,
            ttl_seconds: wanted.ttl.map(|ttl| ttl.as_secs_f64()),
            most: MAX_KEYS,
        };
        let created = self.store.create_key(&new).await?;
        let key = created.ok_or(Error::TooManyKeys { limit: MAX_KEYS })?;
        self.reload_keys().await;
        Ok(CreatedKey { key, secret })
    }

    /// Up to `most` keys of the tenant, newest first, after the key with id `after`.
    pub async fn keys(
        &self,
        caller: &Principal,
        tenant: Option<TenantId>,
        after: Option<&str>,
        most: u32,
    ) -> Result<Vec<ApiKey>, Error> {
        let tenant = tenant_of(caller, tenant)?;
        Ok(self.store.keys(&tenant, after, most).await?)
    }

    /// Revokes a key, which this replica rejects when this returns. Returns [`Error::KeyNotFound`] for a key
    /// with more access than the caller.
    pub async fn revoke_key(&self, caller: &Principal, tenant: Option<TenantId>, id: &str) -> Result<ApiKey, Error> {
        let tenant = tenant_of(caller, tenant)?;
        let revoked = self.store.revoke_key(&tenant, id, caller.access).await?;
        let key = revoked.ok_or_else(|| Error::KeyNotFound(id.to_owned()))?;
        self.reload_keys().await;
        Ok(key)
    }

    /// Reloads the keys after a change. A failure is only logged, because the change itself has been made.
    pub async fn reload_keys(&self) {
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "cannot reload the API keys yet");
        }
    }
}

/// The tenant to manage. Returns [`Error::Forbidden`] if the caller may not manage it.
pub fn tenant_of(caller: &Principal, wanted: Option<TenantId>) -> Result<TenantId, Error> {
    match wanted {
        Some(tenant) if tenant != caller.tenant && caller.access < Access::Operator => {
            let needed = Access::Operator;
            Err(Error::Forbidden { needed })
        }
        Some(tenant) => Ok(tenant),
        None => Ok(caller.tenant.clone()),
    }
}
