//! Making, listing and revoking API keys.

use std::time::Duration;

use uuid::Uuid;

use super::{Auth, error::Error, secret};
use crate::{
    model::{Access, ApiKey, Principal, TenantId},
    store::api_key::NewKey,
};

/// Live keys of one tenant. Two are enough to rotate; this is for one per host.
pub const MOST_KEYS: i64 = 100;

/// A key to make.
#[derive(Debug, Clone)]
pub struct CreateKey {
    /// Whose data it gives access to. `None`: the caller's tenant.
    pub tenant: Option<TenantId>,
    /// What it allows.
    pub access: Access,
    /// What it is for.
    pub name: String,
    /// After how long it expires.
    pub ttl: Option<Duration>,
}

/// A key that was made, and its secret, which nothing else has.
#[derive(Clone)]
pub struct CreatedKey {
    /// The key.
    pub key: ApiKey,
    /// The secret.
    pub secret: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CreatedKey").field(&self.key).finish()
    }
}

impl Auth {
    /// Makes a key, which this replica accepts when it returns.
    pub async fn create_key(
        &self,
        caller: &Principal,
        wanted: CreateKey,
    ) -> Result<CreatedKey, Error> {
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
            most: MOST_KEYS,
        };
        let created = self.store.create_key(&new).await?;
        let key = created.ok_or(Error::TooManyKeys { limit: MOST_KEYS })?;
        self.look_again().await;
        Ok(CreatedKey { key, secret })
    }

    /// The tenant's keys, the newest first, after that id, at most so many.
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

    /// Revokes a key, which this replica refuses when it returns. One with more access than the
    /// caller has is not found.
    pub async fn revoke_key(
        &self,
        caller: &Principal,
        tenant: Option<TenantId>,
        id: &str,
    ) -> Result<ApiKey, Error> {
        let tenant = tenant_of(caller, tenant)?;
        let revoked = self.store.revoke_key(&tenant, id, caller.access).await?;
        let key = revoked.ok_or_else(|| Error::KeyNotFound(id.to_owned()))?;
        self.look_again().await;
        Ok(key)
    }

    /// Reads keys again after a change. The change is made; that this replica does not see it at once
    /// is no error.
    pub async fn look_again(&self) {
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "keys cannot be read again yet");
        }
    }
}

/// The tenant that is meant, if the caller may manage it.
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
