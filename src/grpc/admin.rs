//! AdminService: server information, the caller's identity, API keys, tenant limits and tenant deletion.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{access, call::Call, caller::caller, decode, page_token};
use crate::{
    auth::{
        Auth,
        manage::{CreatedKey, tenant_of},
    },
    codec::time::{duration_to_pb, timestamp_to_pb},
    model::{ApiKey, TenantDeletion, TenantLimits},
    pb::{self, admin_service_server::AdminService},
    quota::TenantState,
    store,
    turn::Engine,
};

/// AdminService on top of the credentials and the engine.
#[derive(Debug, Clone)]
pub struct Admin {
    auth: Arc<Auth>,
    engine: Arc<Engine>,
    max_request_bytes: usize,
}

impl Admin {
    /// Creates the service.
    pub fn new(auth: Arc<Auth>, engine: Arc<Engine>, max_request_bytes: usize) -> Self {
        Self {
            auth,
            engine,
            max_request_bytes,
        }
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn get_server_info(
        &self,
        request: Request<pb::GetServerInfoRequest>,
    ) -> Result<Response<pb::GetServerInfoResponse>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema_version: store::migrate::newest(),
            max_request_bytes: number(self.max_request_bytes as u64),
            max_blob_bytes: number(self.engine.rules().blobs.max_bytes),
            auth_required: self.auth.is_required(),
            tenant_id: caller.tenant.into_string(),
            access: access::to_pb(caller.access).into(),
            subject: caller.subject,
        }))
    }

    async fn create_key(
        &self,
        request: Request<pb::CreateKeyRequest>,
    ) -> Result<Response<pb::CreateKeyResponse>, Status> {
        let (caller, call) = (caller(&request)?, call(&request));
        let create = decode::create_key(request.into_inner())?;
        self.engine
            .check_tenant(create.tenant.as_ref().unwrap_or(&caller.tenant))?;
        let CreatedKey { key, secret } = self.auth.create_key(&caller, create).await?;
        if let Some(call) = call {
            call.record_managed(key.tenant.as_str(), &key.id);
        }
        Ok(Response::new(pb::CreateKeyResponse {
            key: Some(api_key(key)),
            secret,
        }))
    }

    async fn list_keys(
        &self,
        request: Request<pb::ListKeysRequest>,
    ) -> Result<Response<pb::ListKeysResponse>, Status> {
        const LIST: &str = "ListKeys";
        let caller = caller(&request)?;
        let decode::ListKeys { tenant, page } = decode::list_keys(request.into_inner())?;
        let decode::PageRequest { size, token } = page;
        let filter = tenant.as_ref().unwrap_or(&caller.tenant).clone();
        let after = match token {
            Some(token) => Some(page_token::decode(&token, LIST, filter.as_str())?),
            None => None,
        };
        let read = self.auth.keys(&caller, tenant, after.as_deref(), size + 1);
        let mut keys = read.await?;
        let more = keys.len() > size as usize;
        keys.truncate(size as usize);
        let next_page_token = match keys.last().filter(|_| more) {
            Some(last) => page_token::encode(LIST, filter.as_str(), &last.id),
            None => String::new(),
        };
        Ok(Response::new(pb::ListKeysResponse {
            keys: keys.into_iter().map(api_key).collect(),
            next_page_token,
        }))
    }

    async fn revoke_key(
        &self,
        request: Request<pb::RevokeKeyRequest>,
    ) -> Result<Response<pb::RevokeKeyResponse>, Status> {
        let caller = caller(&request)?;
        let decode::RevokeKey { tenant, key } = decode::revoke_key(request.into_inner())?;
        let key = self.auth.revoke_key(&caller, tenant, &key).await?;
        Ok(Response::new(pb::RevokeKeyResponse {
            key: Some(api_key(key)),
        }))
    }

    async fn get_tenant_limits(
        &self,
        request: Request<pb::GetTenantLimitsRequest>,
    ) -> Result<Response<pb::GetTenantLimitsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = decode::get_tenant_limits(request.into_inner())?;
        let tenant = tenant_of(&caller, wanted)?;
        let TenantState {
            own,
            in_force,
            used,
        } = self.engine.tenant_state(&tenant).await?;
        Ok(Response::new(pb::GetTenantLimitsResponse {
            tenant_id: tenant.into_string(),
            own: Some(tenant_limits(own)),
            in_force: Some(tenant_limits(in_force)),
            r#use: Some(pb::TenantUse {
                running_turns: number(used.running_turns),
                tokens_owed: used.tokens_owed.map(duration_to_pb),
                stored_bytes: used.stored_bytes.map(number),
            }),
        }))
    }

    async fn set_tenant_limits(
        &self,
        request: Request<pb::SetTenantLimitsRequest>,
    ) -> Result<Response<pb::SetTenantLimitsResponse>, Status> {
        caller(&request)?;
        let decode::SetLimits { tenant, limits } = decode::set_tenant_limits(request.into_inner())?;
        self.engine.check_tenant(&tenant)?;
        let in_force = self.engine.set_limits(tenant, limits).await?;
        Ok(Response::new(pb::SetTenantLimitsResponse {
            in_force: Some(tenant_limits(in_force)),
        }))
    }

    async fn delete_tenant(
        &self,
        request: Request<pb::DeleteTenantRequest>,
    ) -> Result<Response<pb::DeleteTenantResponse>, Status> {
        let caller = caller(&request)?;
        let tenant = decode::delete_tenant(request.into_inner())?;
        let deletion = self.engine.delete_tenant(tenant, caller.subject).await?;
        self.auth.reload_keys().await;
        Ok(Response::new(pb::DeleteTenantResponse {
            deletion: Some(tenant_deletion(deletion)),
        }))
    }

    async fn get_tenant_deletion(
        &self,
        request: Request<pb::GetTenantDeletionRequest>,
    ) -> Result<Response<pb::GetTenantDeletionResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = decode::get_tenant_deletion(request.into_inner())?;
        let tenant = tenant_of(&caller, wanted)?;
        let deletion = self.engine.tenant_deletion(&tenant).await?;
        Ok(Response::new(pb::GetTenantDeletionResponse {
            deletion: deletion.map(tenant_deletion),
        }))
    }
}

/// The call, for values that only its log line records.
fn call<T>(request: &Request<T>) -> Option<Arc<Call>> {
    request.extensions().get().cloned()
}

fn tenant_deletion(deletion: TenantDeletion) -> pb::TenantDeletion {
    let TenantDeletion {
        tenant,
        requested_at: asked_at,
        requested_by: asked_by,
        done_at,
        sessions,
        blobs,
        blob_bytes,
        keys,
    } = deletion;
    pb::TenantDeletion {
        tenant_id: tenant.into_string(),
        request_time: Some(timestamp_to_pb(asked_at)),
        requested_by: asked_by,
        done_time: done_at.map(timestamp_to_pb),
        sessions: number(sessions),
        blobs: number(blobs),
        blob_bytes: number(blob_bytes),
        keys: number(keys),
    }
}

fn tenant_limits(limits: TenantLimits) -> pb::TenantLimits {
    let TenantLimits {
        running_turns,
        requests_per_second,
        tokens_per_minute,
        stored_bytes,
    } = limits;
    pb::TenantLimits {
        running_turns: running_turns.map(number),
        requests_per_second: requests_per_second.map(number),
        tokens_per_minute: tokens_per_minute.map(number),
        stored_bytes: stored_bytes.map(number),
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn api_key(key: ApiKey) -> pb::ApiKey {
    let ApiKey {
        id,
        tenant,
        access,
        name,
        created_at,
        expires_at,
        revoked_at,
    } = key;
    pb::ApiKey {
        key_id: id,
        tenant_id: tenant.into_string(),
        access: access::to_pb(access).into(),
        name,
        create_time: Some(timestamp_to_pb(created_at)),
        expire_time: expires_at.map(timestamp_to_pb),
        revoke_time: revoked_at.map(timestamp_to_pb),
    }
}
