//! ContextService: where the tokens are, and how a context is made smaller. What is not implemented yet says so.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{counts, decode, stats, stats_text, status::not_implemented_rpc, tenant};
use crate::{
    codec,
    model::SessionKey,
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
        request: Request<pb::GetContextStatsRequest>,
    ) -> Result<Response<pb::GetContextStatsResponse>, Status> {
        let tenant = tenant(&request);
        let decode::GetContextStats { session, model, as_text } = decode::get_context_stats(request.into_inner())?;
        let found = self.engine.context_stats(&SessionKey::new(tenant, session), model.as_deref()).await?;
        let stats = stats::to_pb(&found);
        let text = if as_text { stats_text::text(&stats, found.budget.assumed) } else { String::new() };
        Ok(Response::new(pb::GetContextStatsResponse { stats: Some(stats), text }))
    }

    async fn compact(&self, _: Request<pb::CompactRequest>) -> Result<Response<pb::CompactResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/Compact"))
    }

    async fn prune_tool_outputs(
        &self,
        request: Request<pb::PruneToolOutputsRequest>,
    ) -> Result<Response<pb::PruneToolOutputsResponse>, Status> {
        let tenant = tenant(&request);
        let command = decode::prune_tool_outputs(request.into_inner())?;
        let report = self.engine.prune_tool_outputs(tenant, command).await?;
        Ok(Response::new(pb::PruneToolOutputsResponse { report: Some(codec::ledger::pruned_to_pb(&report)) }))
    }

    async fn restore_tool_outputs(
        &self,
        request: Request<pb::RestoreToolOutputsRequest>,
    ) -> Result<Response<pb::RestoreToolOutputsResponse>, Status> {
        let tenant = tenant(&request);
        let command = decode::restore_tool_outputs(request.into_inner())?;
        let restored = codec::ledger::restored_to_pb(&self.engine.restore_tool_outputs(tenant, command).await?);
        let pb::ContextRestored { pruned_at_seq: _, call_ids, tokens_restored } = restored;
        Ok(Response::new(pb::RestoreToolOutputsResponse { call_ids, tokens_restored }))
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
        let request = request.into_inner();
        let stored = self.engine.stored(&tenant, &decode::named_in_messages(&request.messages)).await?;
        let command = decode::count_tokens(request, stored)?;
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
