//! AdminService: server information, the caller's identity, API keys, tenant limits and tenant deletion.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    call::Call,
    decode::{ListKeys, RevokeKey, SetLimits},
    handler::{self, service},
    pager::Pager,
};
use crate::{
    auth::{
        Auth,
        manage::{CreatedKey, tenant_of},
    },
    codec::field::{Field as _, messages},
    model::{ApiKey, Principal, TenantDeletion, TenantId, TenantLimits},
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

service! {
    AdminService for Admin {
        get_server_info: GetServerInfoRequest,
        list_keys: ListKeysRequest,
        revoke_key: RevokeKeyRequest,
        get_tenant_limits: GetTenantLimitsRequest,
        set_tenant_limits: SetTenantLimitsRequest,
        delete_tenant: DeleteTenantRequest,
        get_tenant_deletion: GetTenantDeletionRequest,
    }

    async fn create_key(
        &self,
        request: Request<pb::CreateKeyRequest>,
    ) -> Result<Response<pb::CreateKeyResponse>, Status> {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let (caller, create) = handler::accept(&self.engine, request).await?;
        self.engine.capacity.check_tenant(create.tenant.as_ref().unwrap_or(&caller.tenant))?;
        let CreatedKey { key, secret } = self.auth.create_key(&caller, create).await?;
        if let Some(call) = call {
            call.record_managed(key.tenant.as_str(), &key.id);
        }
        Ok(Response::new(pb::CreateKeyResponse { key: key.to_field(), secret }))
    }
}

impl Admin {
    /// Creates the service.
    pub fn new(auth: Arc<Auth>, engine: Arc<Engine>, max_request_bytes: usize) -> Self {
        Self { auth, engine, max_request_bytes }
    }

    async fn get_server_info(&self, caller: Principal, (): ()) -> Result<pb::GetServerInfoResponse, Status> {
        Ok(pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema_version: store::migrate::newest(),
            max_request_bytes: (self.max_request_bytes as u64).to_field(),
            max_blob_bytes: self.engine.prompts.rules.blobs.max_bytes.to_field(),
            auth_required: self.auth.is_required(),
            tenant_id: caller.tenant.into_string(),
            access: caller.access.to_field(),
            subject: caller.subject,
        })
    }

    async fn list_keys(
        &self,
        caller: Principal,
        ListKeys { tenant, page }: ListKeys,
    ) -> Result<pb::ListKeysResponse, Status> {
        let filter = tenant.as_ref().unwrap_or(&caller.tenant).to_string();
        let mut page: Pager<String, _> = Pager::new("ListKeys", filter, page)?;
        if let Some(most) = page.next_read(u32::MAX) {
            let keys = self.auth.keys(&caller, tenant, page.position.as_deref(), most).await?;
            for key in page.take(keys, false) {
                let shown = key.to_field();
                if !page.push(key.id, shown) {
                    break;
                }
            }
        }
        let (keys, next_page_token) = page.finish();
        Ok(pb::ListKeysResponse { keys, next_page_token })
    }

    async fn revoke_key(
        &self,
        caller: Principal,
        RevokeKey { tenant, key }: RevokeKey,
    ) -> Result<pb::RevokeKeyResponse, Status> {
        let key = self.auth.revoke_key(&caller, tenant, &key).await?;
        Ok(pb::RevokeKeyResponse { key: key.to_field() })
    }

    async fn get_tenant_limits(
        &self,
        caller: Principal,
        wanted: Option<TenantId>,
    ) -> Result<pb::GetTenantLimitsResponse, Status> {
        let tenant = tenant_of(&caller, wanted)?;
        let TenantState { own, in_force, used } = self.engine.capacity.tenant_state(&tenant).await?;
        Ok(pb::GetTenantLimitsResponse {
            tenant_id: tenant.into_string(),
            own: own.to_field(),
            in_force: in_force.to_field(),
            r#use: Some(pb::TenantUse {
                running_turns: used.running_turns.to_field(),
                tokens_owed: used.tokens_owed.to_field(),
                stored_bytes: used.stored_bytes.to_field(),
            }),
        })
    }

    async fn set_tenant_limits(
        &self,
        _: Principal,
        SetLimits { tenant, limits }: SetLimits,
    ) -> Result<pb::SetTenantLimitsResponse, Status> {
        self.engine.capacity.check_tenant(&tenant)?;
        let in_force = self.engine.capacity.set_limits(tenant, limits).await?;
        Ok(pb::SetTenantLimitsResponse { in_force: in_force.to_field() })
    }

    async fn delete_tenant(&self, caller: Principal, tenant: TenantId) -> Result<pb::DeleteTenantResponse, Status> {
        let deletion = self.engine.sessions.delete_tenant(tenant, caller.subject).await?;
        self.auth.reload_keys().await;
        Ok(pb::DeleteTenantResponse { deletion: deletion.to_field() })
    }

    async fn get_tenant_deletion(
        &self,
        caller: Principal,
        wanted: Option<TenantId>,
    ) -> Result<pb::GetTenantDeletionResponse, Status> {
        let tenant = tenant_of(&caller, wanted)?;
        let deletion = self.engine.store().erasure(&tenant).await?;
        Ok(pb::GetTenantDeletionResponse { deletion: deletion.to_field() })
    }
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
