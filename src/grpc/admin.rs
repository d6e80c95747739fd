//! AdminService: server information, the caller's identity, API keys, tenant limits and tenant deletion.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{call::Call, caller::caller, decode, page_token};
use crate::{
    auth::{
        Auth,
        manage::{CreatedKey, tenant_of},
    },
    codec::field::{Field as _, messages},
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
        Self { auth, engine, max_request_bytes }
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
            max_request_bytes: (self.max_request_bytes as u64).to_field(),
            max_blob_bytes: self.engine.prompts.rules.blobs.max_bytes.to_field(),
            auth_required: self.auth.is_required(),
            tenant_id: caller.tenant.into_string(),
            access: caller.access.to_field(),
            subject: caller.subject,
        }))
    }

    async fn create_key(
        &self,
        request: Request<pb::CreateKeyRequest>,
    ) -> Result<Response<pb::CreateKeyResponse>, Status> {
        let (caller, call) = (caller(&request)?, call(&request));
        let create = decode::create_key(request.into_inner())?;
        self.engine.capacity.check_tenant(create.tenant.as_ref().unwrap_or(&caller.tenant))?;
        let CreatedKey { key, secret } = self.auth.create_key(&caller, create).await?;
        if let Some(call) = call {
            call.record_managed(key.tenant.as_str(), &key.id);
        }
        Ok(Response::new(pb::CreateKeyResponse { key: key.to_field(), secret }))
    }

    async fn list_keys(&self, request: Request<pb::ListKeysRequest>) -> Result<Response<pb::ListKeysResponse>, Status> {
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
        Ok(Response::new(pb::ListKeysResponse { keys: keys.to_field(), next_page_token }))
    }

    async fn revoke_key(
        &self,
        request: Request<pb::RevokeKeyRequest>,
    ) -> Result<Response<pb::RevokeKeyResponse>, Status> {
        let caller = caller(&request)?;
        let decode::RevokeKey { tenant, key } = decode::revoke_key(request.into_inner())?;
        let key = self.auth.revoke_key(&caller, tenant, &key).await?;
        Ok(Response::new(pb::RevokeKeyResponse { key: key.to_field() }))
    }

    async fn get_tenant_limits(
        &self,
        request: Request<pb::GetTenantLimitsRequest>,
    ) -> Result<Response<pb::GetTenantLimitsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = decode::get_tenant_limits(request.into_inner())?;
        let tenant = tenant_of(&caller, wanted)?;
        let TenantState { own, in_force, used } = self.engine.capacity.tenant_state(&tenant).await?;
        Ok(Response::new(pb::GetTenantLimitsResponse {
            tenant_id: tenant.into_string(),
            own: own.to_field(),
            in_force: in_force.to_field(),
            r#use: Some(pb::TenantUse {
                running_turns: used.running_turns.to_field(),
                tokens_owed: used.tokens_owed.to_field(),
                stored_bytes: used.stored_bytes.to_field(),
            }),
        }))
    }

    async fn set_tenant_limits(
        &self,
        request: Request<pb::SetTenantLimitsRequest>,
    ) -> Result<Response<pb::SetTenantLimitsResponse>, Status> {
        caller(&request)?;
        let decode::SetLimits { tenant, limits } = decode::set_tenant_limits(request.into_inner())?;
        self.engine.capacity.check_tenant(&tenant)?;
        let in_force = self.engine.capacity.set_limits(tenant, limits).await?;
        Ok(Response::new(pb::SetTenantLimitsResponse { in_force: in_force.to_field() }))
    }

    async fn delete_tenant(
        &self,
        request: Request<pb::DeleteTenantRequest>,
    ) -> Result<Response<pb::DeleteTenantResponse>, Status> {
        let caller = caller(&request)?;
        let tenant = decode::delete_tenant(request.into_inner())?;
        let deletion = self.engine.sessions.delete_tenant(tenant, caller.subject).await?;
        self.auth.reload_keys().await;
        Ok(Response::new(pb::DeleteTenantResponse { deletion: deletion.to_field() }))
    }

    async fn get_tenant_deletion(
        &self,
        request: Request<pb::GetTenantDeletionRequest>,
    ) -> Result<Response<pb::GetTenantDeletionResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = decode::get_tenant_deletion(request.into_inner())?;
        let tenant = tenant_of(&caller, wanted)?;
        let deletion = self.engine.store().erasure(&tenant).await?;
        Ok(Response::new(pb::GetTenantDeletionResponse { deletion: deletion.to_field() }))
    }
}

/// The call, for values that only its log line records.
fn call<T>(request: &Request<T>) -> Option<Arc<Call>> {
    request.extensions().get().cloned()
}

messages! {
    TenantDeletion = TenantDeletion {
        tenant = tenant_id,
        requested_at = request_time,
        requested_by,
        done_at = done_time,
        sessions,
        blobs,
        blob_bytes,
        keys,
    }
    TenantLimits = TenantLimits {
        running_turns,
        requests_per_second,
        tokens_per_minute,
        stored_bytes,
    }
    ApiKey = ApiKey {
        id = key_id,
        tenant = tenant_id,
        access,
        name,
        created_at = create_time,
        expires_at = expire_time,
        revoked_at = revoke_time,
    }
}
