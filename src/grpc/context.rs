//! ContextService: token accounting and compaction of a session's context.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::{caller::tenant, counts, decode, page_budget::PageBudget, page_token, prompt, stats, stats_text};
use crate::{
    codec::{self, field::Field as _},
    model::{CompactionId, SessionKey, UsageReceipt},
    pb::{self, context_service_server::ContextService},
    turn::Engine,
};

/// Compactions per database read. A page takes as many reads as it needs.
const COMPACTIONS_PER_READ: u32 = 16;
/// Name of the list in its page tokens.
const COMPACTIONS: &str = "ListCompactions";

/// ContextService on top of an engine.
#[derive(Debug, Clone)]
pub struct Contexts {
    engine: Arc<Engine>,
}

impl Contexts {
    /// Creates the service.
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
        let tenant = tenant(&request)?;
        let decode::GetContextStats { session, model, as_text } = decode::get_context_stats(request.into_inner())?;
        let key = SessionKey::new(tenant, session);
        let found = self.engine.prompts.context_stats(&key, model.as_deref()).await?;
        let stats = stats::to_pb(&found, &key.session);
        let text = if as_text { stats_text::text(&stats, found.budget.assumed) } else { String::new() };
        Ok(Response::new(pb::GetContextStatsResponse { stats: Some(stats), text }))
    }

    async fn compact(&self, request: Request<pb::CompactRequest>) -> Result<Response<pb::CompactResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::compact(request.into_inner())?;
        let session = command.session.clone();
        let compaction = self.engine.sessions.compact(tenant, command).await?;
        let compaction = Some(codec::compaction::to_pb(&compaction, &session));
        Ok(Response::new(pb::CompactResponse { compaction }))
    }

    async fn prune_tool_outputs(
        &self,
        request: Request<pb::PruneToolOutputsRequest>,
    ) -> Result<Response<pb::PruneToolOutputsResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::prune_tool_outputs(request.into_inner())?;
        let report = self.engine.sessions.prune_tool_outputs(tenant, command).await?;
        Ok(Response::new(pb::PruneToolOutputsResponse { report: report.to_field() }))
    }

    async fn restore_tool_outputs(
        &self,
        request: Request<pb::RestoreToolOutputsRequest>,
    ) -> Result<Response<pb::RestoreToolOutputsResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::restore_tool_outputs(request.into_inner())?;
        let restored = self.engine.sessions.restore_tool_outputs(tenant, command).await?;
        let pb::ContextRestored { pruned_at_seq: _, call_ids, tokens_restored } = restored.to_field();
        Ok(Response::new(pb::RestoreToolOutputsResponse { call_ids, tokens_restored }))
    }

    async fn prepare_context(
        &self,
        request: Request<pb::PrepareContextRequest>,
    ) -> Result<Response<pb::PrepareContextResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::prepare_context(request.into_inner())?;
        let key = SessionKey::new(tenant.clone(), command.session.clone());
        let (rendered, report) = self.engine.sessions.prepare_context(tenant, command).await?;
        let report = Some(codec::ledger::prepare_report_to_pb(&report, &key.session));
        let prompt = prompt::to_pb(&self.engine, &key, rendered).await?;
        Ok(Response::new(pb::PrepareContextResponse { prompt: Some(prompt), report }))
    }

    async fn render_context(
        &self,
        request: Request<pb::RenderContextRequest>,
    ) -> Result<Response<pb::RenderContextResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::render_context(request.into_inner())?;
        let key = SessionKey::new(tenant.clone(), command.session.clone());
        let rendered = self.engine.prompts.render(tenant, command).await?;
        let prompt = prompt::to_pb(&self.engine, &key, rendered).await?;
        Ok(Response::new(pb::RenderContextResponse { prompt: Some(prompt) }))
    }

    async fn count_tokens(
        &self,
        request: Request<pb::CountTokensRequest>,
    ) -> Result<Response<pb::CountTokensResponse>, Status> {
        let tenant = tenant(&request)?;
        let request = request.into_inner();
        let stored = self.engine.prompts.stored(&tenant, &decode::blobs_in_messages(&request.messages)).await?;
        let command = decode::count_tokens(request, stored)?;
        let counts = self.engine.prompts.count_tokens(tenant, command).await?;
        Ok(Response::new(counts::counts(&counts)))
    }

    async fn list_compactions(
        &self,
        request: Request<pb::ListCompactionsRequest>,
    ) -> Result<Response<pb::ListCompactionsResponse>, Status> {
        let tenant = tenant(&request)?;
        let decode::ListCompactions { session, page } = decode::list_compactions(request.into_inner())?;
        let key = SessionKey::new(tenant, session);
        let filter = format!("{}/{}", key.tenant, key.session);
        let token = page.token.map(|token| page_token::decode(&token, COMPACTIONS, &filter)).transpose()?;
        let before = token.map(CompactionId::new);
        let mut compactions = Vec::new();
        let mut last = before;
        let mut room = PageBudget::default();
        let batch = COMPACTIONS_PER_READ.min(page.size.saturating_add(1));
        let more = 'page: loop {
            let read = self.engine.prompts.compactions(&key, last.as_ref(), batch).await?;
            for compaction in &read {
                let shown = codec::compaction::to_pb(compaction, &key.session);
                if compactions.len() == page.size as usize || !room.try_reserve(shown.encoded_len()) {
                    break 'page true;
                }
                last.clone_from(&compaction.id);
                compactions.push(shown);
            }
            if read.len() < batch as usize {
                break false;
            }
        };
        let last = last.filter(|_| more);
        let next_page_token = last.map(|id| page_token::encode(COMPACTIONS, &filter, id.as_str())).unwrap_or_default();
        Ok(Response::new(pb::ListCompactionsResponse { compactions, next_page_token }))
    }

    async fn revert_compaction(
        &self,
        request: Request<pb::RevertCompactionRequest>,
    ) -> Result<Response<pb::RevertCompactionResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::revert_compaction(request.into_inner())?;
        let session = command.session.clone();
        let (compaction, size) = self.engine.sessions.revert_compaction(tenant, command).await?;
        Ok(Response::new(pb::RevertCompactionResponse {
            compaction: Some(codec::compaction::to_pb(&compaction, &session)),
            context_tokens: size.to_field(),
        }))
    }

    async fn record_usage(
        &self,
        request: Request<pb::RecordUsageRequest>,
    ) -> Result<Response<pb::RecordUsageResponse>, Status> {
        let tenant = tenant(&request)?;
        let command = decode::record_usage(request.into_inner())?;
        let (UsageReceipt { estimate, size }, calibration_ratio) =
            self.engine.sessions.record_usage(tenant, command).await?;
        Ok(Response::new(pb::RecordUsageResponse {
            estimate: estimate.to_field(),
            calibration_ratio,
            context_tokens: size.to_field(),
        }))
    }
}
