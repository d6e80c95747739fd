//! API keys, identified by the hashes of their secrets.

use std::{sync::LazyLock, time::Duration};

use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store,
    admitted::Read,
    named_parameters::Named,
    number::{Number as _, enum_value},
    pipeline::{Param, Query},
    row::{get, tenant_id},
};
use crate::model::{Access, ApiKey, TenantId};

pub(super) const NEXT_VERSION: &str = "-- store::api_key::next_version
    update api_keys_version set version = version + 1";

/// How long expired and revoked keys are kept.
const KEPT: Duration = Duration::from_hours(30 * 24);
const FORGET: &str = "-- store::api_key::forget
    delete from api_keys where tenant_id = $1 and least(expires_at, revoked_at) < now() - make_interval(secs => $2)";

static CREATE: LazyLock<Named> = named_alone!("sql/keys/create.sql");

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    pub id: &'a str,
    /// The tenant whose data it gives access to.
    pub tenant: &'a TenantId,
    /// SHA-256 of the whole key.
    pub hash: [u8; 32],
    pub access: Access,
    /// Description of its purpose.
    pub name: &'a str,
    /// Seconds until it expires.
    pub ttl_seconds: Option<f64>,
    /// Maximum number of live keys of the tenant.
    pub most: i64,
}

/// An accepted key and its hash.
#[derive(Debug, Clone)]
pub struct LiveKey {
    /// SHA-256 of the whole key.
    pub hash: [u8; 32],
    pub key: ApiKey,
}

impl Store {
    /// Reads a version number that changes with every change of any key.
    pub async fn keys_version(&self) -> Result<(i64, Read), Error> {
        const SQL: &str = "-- store::api_key::keys_version
            select version, now() as at from api_keys_version";
        self.read_version(SQL, "keys").await
    }

    /// Reads the keys of all tenants that are neither revoked nor expired.
    pub async fn live_keys(&self) -> Result<Vec<LiveKey>, Error> {
        const SQL: &str = "-- store::api_key::live_keys
            select tenant_id, key_id, access, name, created_at, expires_at, revoked_at, hash from api_keys
             where revoked_at is null and (expires_at is null or expires_at > now())";
        let rows = self.reserved().read(SQL, &[]).await?;
        rows.iter()
            .map(|row| {
                let hash: Vec<u8> = get(row, "hash")?;
                let hash = <[u8; 32]>::try_from(hash);
                Ok(LiveKey {
                    hash: hash
                        .map_err(|_| Error::Corrupt("the hash of an API key does not have 32 bytes".to_owned()))?,
                    key: api_key(row)?,
                })
            })
            .collect()
    }

    /// Stores a key. Returns `None` if the tenant is at its limit of live keys.
    pub async fn create_key(&self, new: &NewKey<'_>) -> Result<Option<ApiKey>, Error> {
        let access = new.access.number();
        let tenant = new.tenant.as_str();
        let hash = new.hash.as_slice();
        let known_at = AdmittedAt::current();
        let create = CREATE.query(&[
            ("tenant", &tenant as Param<'_>),
            ("key", &new.id),
            ("hash", &hash),
            ("access", &access),
            ("name", &new.name),
            ("ttl", &new.ttl_seconds),
            ("most", &new.most),
            ("known_at", &known_at),
        ])?;
        let created = self.change_keys(new.tenant, create).await?;
        if created.is_none() {
            self.check_tenant(tenant).await?;
        }
        Ok(created)
    }

    /// Revokes a key whose access is at most `most`. A key that is already revoked is unchanged. Returns `None` if the
    /// tenant has no such key.
    pub async fn revoke_key(&self, tenant: &TenantId, id: &str, most: Access) -> Result<Option<ApiKey>, Error> {
        const SQL: &str = "-- store::api_key::revoke_key
            update api_keys set revoked_at = coalesce(revoked_at, now()) where tenant_id = $1 and key_id = $2 and access <= $3
            returning tenant_id, key_id, access, name, created_at, expires_at, revoked_at";
        let tenant_key = tenant.as_str();
        let most = most.number();
        let params: [Param<'_>; 3] = [&tenant_key, &id, &most];
        self.change_keys(tenant, Query::new(SQL, params)).await
    }

    /// Lists at most `most` keys of the tenant, newest first, starting after the id `after`.
    pub async fn keys(&self, tenant: &TenantId, after: Option<&str>, most: u32) -> Result<Vec<ApiKey>, Error> {
        const SQL: &str = "-- store::api_key::keys: ids are ordered by time
            select tenant_id, key_id, access, name, created_at, expires_at, revoked_at from api_keys
             where tenant_id = $1 and ($2::text is null or key_id < $2)
             order by key_id desc limit $3";
        let rows = self.database.read(SQL, &[&tenant.as_str(), &after, &i64::from(most)]).await?;
        rows.iter().map(api_key).collect()
    }

    async fn change_keys(&self, tenant: &TenantId, change: Query<'_>) -> Result<Option<ApiKey>, Error> {
        let forget: [Param<'_>; 2] = [&tenant.as_str(), &KEPT.as_secs_f64()];
        let change = [Query::new(NEXT_VERSION, []), change, Query::new(FORGET, forget)];
        let answers = self.database.transact(&change).await?;
        answers.get(1).and_then(|rows| rows.first()).map(api_key).transpose()
    }
}

fn api_key(row: &Row) -> Result<ApiKey, Error> {
    Ok(ApiKey {
        id: get(row, "key_id")?,
        tenant: tenant_id(row)?,
        access: enum_value(row, "access")?,
        name: get(row, "name")?,
        created_at: get(row, "created_at")?,
        expires_at: get(row, "expires_at")?,
        revoked_at: get(row, "revoked_at")?,
    })
}
