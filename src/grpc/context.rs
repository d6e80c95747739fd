//! ContextService: where the tokens are. It counts; what is not implemented yet says so.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{counts, decode, status::not_implemented_rpc, tenant};
use crate::{
    pb::{self, context_service_server::ContextService},
    turn::Engine,
};

/// ContextService over an engine, as far as it is built.
#[derive(Debug, Clone)]
pub struct Contexts {
    engine: Arc<Engine>,
}

impl Contexts {
    /// The service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl ContextService for Contexts {
    async fn get_context_stats(
        &self,
        _: Request<pb::GetContextStatsRequest>,
    ) -> Result<Response<pb::GetContextStatsResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/GetContextStats"))
    }

    async fn compact(&self, _: Request<pb::CompactRequest>) -> Result<Response<pb::CompactResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/Compact"))
    }

    async fn prune_tool_outputs(
        &self,
        _: Request<pb::PruneToolOutputsRequest>,
    ) -> Result<Response<pb::PruneToolOutputsResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/PruneToolOutputs"))
    }

    async fn restore_tool_outputs(
        &self,
        _: Request<pb::RestoreToolOutputsRequest>,
    ) -> Result<Response<pb::RestoreToolOutputsResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/RestoreToolOutputs"))
    }

    async fn prepare_context(
        &self,
        _: Request<pb::PrepareContextRequest>,
    ) -> Result<Response<pb::PrepareContextResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/PrepareContext"))
    }

    async fn render_context(
        &self,
        _: Request<pb::RenderContextRequest>,
    ) -> Result<Response<pb::RenderContextResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/RenderContext"))
    }

    async fn count_tokens(
        &self,
        request: Request<pb::CountTokensRequest>,
    ) -> Result<Response<pb::CountTokensResponse>, Status> {
        let tenant = tenant(&request);
        let command = decode::count_tokens(request.into_inner())?;
        let counts = self.engine.count_tokens(tenant, command).await?;
        Ok(Response::new(counts::counts(&counts)))
    }

    async fn list_compactions(
        &self,
        _: Request<pb::ListCompactionsRequest>,
    ) -> Result<Response<pb::ListCompactionsResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/ListCompactions"))
    }

    async fn revert_compaction(
        &self,
        _: Request<pb::RevertCompactionRequest>,
    ) -> Result<Response<pb::RevertCompactionResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/RevertCompaction"))
    }

    async fn record_usage(
        &self,
        _: Request<pb::RecordUsageRequest>,
    ) -> Result<Response<pb::RecordUsageResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/RecordUsage"))
    }
}
