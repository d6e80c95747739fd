//! Decodes the requests about API keys, tenant limits and tenant deletion.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Findings, PageRequest, Path, duration, page,
    text::{self, MaxLength},
};
use crate::{
    auth::manage::CreateKey,
    grpc::{access, violations::RequestError},
    model::{Access, TenantId, TenantLimits, access::is_tenant},
    pb::{self, FieldReason},
};

pub const CREATE_KEY: &str = "contextd.v1.AdminService/CreateKey";
pub const LIST_KEYS: &str = "contextd.v1.AdminService/ListKeys";
pub const REVOKE_KEY: &str = "contextd.v1.AdminService/RevokeKey";

pub const GET_TENANT_LIMITS: &str = "contextd.v1.AdminService/GetTenantLimits";
pub const SET_TENANT_LIMITS: &str = "contextd.v1.AdminService/SetTenantLimits";

const DELETE_TENANT: &str = "contextd.v1.AdminService/DeleteTenant";
const GET_TENANT_DELETION: &str = "contextd.v1.AdminService/GetTenantDeletion";

/// Maximum length of a key's name, in characters.
const MAX_NAME_LENGTH: MaxLength = MaxLength::Chars(200);
/// Maximum length of a key's id, in characters.
const MAX_ID_LENGTH: MaxLength = MaxLength::Chars(128);
/// Lifetime of a key: one minute to ten years.
const TTL: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(10 * 365 * 24);

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
pub fn create_key(request: pb::CreateKeyRequest) -> Result<CreateKey, RequestError> {
    let mut found = Findings::of(CREATE_KEY);
    let pb::CreateKeyRequest {
        tenant_id,
        access: number,
        name,
        ttl,
    } = request;
    let access = access::from_number(number);
    if number == 0 {
        found.required(Path::to("access"));
    } else if access.is_none() {
        found.invalid(
            Path::to("access"),
            FieldReason::Unknown,
            "is unknown to this server",
        );
    }
    let create = CreateKey {
        tenant: tenant(tenant_id, &mut found),
        access: access.unwrap_or(Access::Read),
        name: text::single_line(Path::to("name"), name, MAX_NAME_LENGTH, &mut found),
        ttl: ttl.and_then(|ttl| duration::within(TTL, Path::to("ttl"), ttl, &mut found)),
    };
    found.finish(create)
}

/// Decodes a ListKeysRequest.
pub fn list_keys(request: pb::ListKeysRequest) -> Result<ListKeys, RequestError> {
    let mut found = Findings::of(LIST_KEYS);
    let pb::ListKeysRequest {
        tenant_id,
        page_size,
        page_token,
    } = request;
    let list = ListKeys {
        tenant: tenant(tenant_id, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

/// Decodes a RevokeKeyRequest.
pub fn revoke_key(request: pb::RevokeKeyRequest) -> Result<RevokeKey, RequestError> {
    let mut found = Findings::of(REVOKE_KEY);
    let pb::RevokeKeyRequest { key_id, tenant_id } = request;
    if key_id.is_empty() {
        found.required(Path::to("key_id"));
    }
    let revoke = RevokeKey {
        tenant: tenant(tenant_id, &mut found),
        key: text::single_line(Path::to("key_id"), key_id, MAX_ID_LENGTH, &mut found),
    };
    found.finish(revoke)
}

/// Decodes a GetTenantLimitsRequest. Returns `None` for the caller's tenant.
pub fn get_tenant_limits(
    request: pb::GetTenantLimitsRequest,
) -> Result<Option<TenantId>, RequestError> {
    let mut found = Findings::of(GET_TENANT_LIMITS);
    let pb::GetTenantLimitsRequest { tenant_id } = request;
    let tenant = tenant(tenant_id, &mut found);
    found.finish(tenant)
}

/// Decodes a SetTenantLimitsRequest.
pub fn set_tenant_limits(request: pb::SetTenantLimitsRequest) -> Result<SetLimits, RequestError> {
    let mut found = Findings::of(SET_TENANT_LIMITS);
    let pb::SetTenantLimitsRequest { tenant_id, limits } = request;
    if tenant_id.is_empty() {
        found.required(Path::to("tenant_id"));
    }
    let tenant = tenant(tenant_id, &mut found);
    let pb::TenantLimits {
        running_turns,
        requests_per_second,
        tokens_per_minute,
        stored_bytes,
    } = limits.unwrap_or_default();
    let path = Path::to("limits");
    let mut limit = |name, limit: Option<i64>| {
        let read = u64::try_from(limit?);
        if read.is_err() {
            let outside = FieldReason::OutOfRange;
            found.invalid(path.field(name), outside, "must not be negative");
        }
        read.ok()
    };
    let limits = TenantLimits {
        running_turns: limit("running_turns", running_turns),
        requests_per_second: limit("requests_per_second", requests_per_second),
        tokens_per_minute: limit("tokens_per_minute", tokens_per_minute),
        stored_bytes: limit("stored_bytes", stored_bytes),
    };
    found.finish(SetLimits {
        tenant: tenant.unwrap_or_else(|| TenantId::new("")),
        limits,
    })
}

/// Decodes a DeleteTenantRequest.
pub fn delete_tenant(request: pb::DeleteTenantRequest) -> Result<TenantId, RequestError> {
    let mut found = Findings::of(DELETE_TENANT);
    let pb::DeleteTenantRequest { tenant_id } = request;
    if tenant_id.is_empty() {
        found.required(Path::to("tenant_id"));
    }
    let tenant = tenant(tenant_id, &mut found);
    found.finish(tenant.unwrap_or_else(|| TenantId::new("")))
}

/// Decodes a GetTenantDeletionRequest. Returns `None` for the caller's tenant.
pub fn get_tenant_deletion(
    request: pb::GetTenantDeletionRequest,
) -> Result<Option<TenantId>, RequestError> {
    let mut found = Findings::of(GET_TENANT_DELETION);
    let pb::GetTenantDeletionRequest { tenant_id } = request;
    let tenant = tenant(tenant_id, &mut found);
    found.finish(tenant)
}

fn tenant(id: String, found: &mut Findings) -> Option<TenantId> {
    if id.is_empty() {
        return None;
    }
    if !is_tenant(&id) {
        found.invalid(
            Path::to("tenant_id"),
            FieldReason::Invalid,
            "must be 1 to 64 characters of [a-z0-9._-]",
        );
    }
    Some(TenantId::new(id))
}
