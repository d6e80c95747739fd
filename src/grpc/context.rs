//! ContextService: where the tokens are. Not implemented yet: every call says so.

use tonic::{Request, Response, Status};

use super::status::not_implemented_rpc;
use crate::pb::{self, context_service_server::ContextService};

/// ContextService as far as it is built: not at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contexts;

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
        _: Request<pb::CountTokensRequest>,
    ) -> Result<Response<pb::CountTokensResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.ContextService/CountTokens"))
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
