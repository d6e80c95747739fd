//! Decodes the requests about API keys, tenant limits and tenant deletion.

use super::{Findings, PageRequest, number, page, text};
use crate::{
    auth::manage::CreateKey,
    grpc::{access, violations::RequestError},
    model::{Access, TenantId, TenantLimits},
    pb::{self, rpc},
};

/// A validated request of ListKeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListKeys {
    /// `None` for the caller's tenant.
    pub tenant: Option<TenantId>,
    /// How many, and from where.
    pub page: PageRequest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeKey {
    /// `None` for the caller's tenant.
    pub tenant: Option<TenantId>,
    /// The id of the key.
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLimits {
    pub tenant: TenantId,
    /// All limits of the tenant that differ from the defaults.
    pub limits: TenantLimits,
}

/// Decodes a CreateKeyRequest.
pub fn create_key(mut request: pb::CreateKeyRequest) -> Result<CreateKey, RequestError> {
    let found = Findings::check(rpc::CREATE_KEY, &mut request);
    let pb::CreateKeyRequest { tenant_id, access: number, name, ttl } = request;
    let create = CreateKey {
        tenant: tenant(tenant_id),
        access: access::from_number(number).unwrap_or(Access::Read),
        name,
        ttl: number::duration(ttl),
    };
    found.finish(create)
}

/// Decodes a ListKeysRequest.
pub fn list_keys(mut request: pb::ListKeysRequest) -> Result<ListKeys, RequestError> {
    let found = Findings::check(rpc::LIST_KEYS, &mut request);
    let pb::ListKeysRequest { tenant_id, page_size, page_token } = request;
    let list = ListKeys { tenant: tenant(tenant_id), page: page::page(page_size, page_token) };
    found.finish(list)
}

/// Decodes a RevokeKeyRequest.
pub fn revoke_key(mut request: pb::RevokeKeyRequest) -> Result<RevokeKey, RequestError> {
    let found = Findings::check(rpc::REVOKE_KEY, &mut request);
    let pb::RevokeKeyRequest { key_id, tenant_id } = request;
    let revoke = RevokeKey { tenant: tenant(tenant_id), key: key_id };
    found.finish(revoke)
}

/// Decodes a GetTenantLimitsRequest. Returns `None` for the caller's tenant.
pub fn get_tenant_limits(mut request: pb::GetTenantLimitsRequest) -> Result<Option<TenantId>, RequestError> {
    let found = Findings::check(rpc::GET_TENANT_LIMITS, &mut request);
    let pb::GetTenantLimitsRequest { tenant_id } = request;
    let tenant = tenant(tenant_id);
    found.finish(tenant)
}

/// Decodes a SetTenantLimitsRequest.
pub fn set_tenant_limits(mut request: pb::SetTenantLimitsRequest) -> Result<SetLimits, RequestError> {
    let found = Findings::check(rpc::SET_TENANT_LIMITS, &mut request);
    let pb::SetTenantLimitsRequest { tenant_id, limits } = request;
    let tenant = tenant(tenant_id);
    let pb::TenantLimits { running_turns, requests_per_second, tokens_per_minute, stored_bytes } =
        limits.unwrap_or_default();
    let limit = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok());
    let limits = TenantLimits {
        running_turns: limit(running_turns),
        requests_per_second: limit(requests_per_second),
        tokens_per_minute: limit(tokens_per_minute),
        stored_bytes: limit(stored_bytes),
    };
    found.finish(SetLimits { tenant: tenant.unwrap_or_else(|| TenantId::new("")), limits })
}

/// Decodes a DeleteTenantRequest.
pub fn delete_tenant(mut request: pb::DeleteTenantRequest) -> Result<TenantId, RequestError> {
    let found = Findings::check(rpc::DELETE_TENANT, &mut request);
    let pb::DeleteTenantRequest { tenant_id } = request;
    let tenant = tenant(tenant_id);
    found.finish(tenant.unwrap_or_else(|| TenantId::new("")))
}

/// Decodes a GetTenantDeletionRequest. Returns `None` for the caller's tenant.
pub fn get_tenant_deletion(mut request: pb::GetTenantDeletionRequest) -> Result<Option<TenantId>, RequestError> {
    let found = Findings::check(rpc::GET_TENANT_DELETION, &mut request);
    let pb::GetTenantDeletionRequest { tenant_id } = request;
    let tenant = tenant(tenant_id);
    found.finish(tenant)
}

fn tenant(id: String) -> Option<TenantId> {
    text::non_empty(id).map(TenantId::new)
}
