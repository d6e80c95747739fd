//! ContextService: token accounting and compaction of a session's context.

use std::sync::Arc;

use tonic::Status;

use super::{
    counts,
    decode::{GetContextStats, ListOfSession},
    handler::service,
    pager::Pager,
    prompt, stats, stats_text,
};
use crate::{
    codec::{self, field::Field as _},
    model::{
        CompactionId, Principal, SessionKey, UsageReceipt,
        command::{
            Compact, CountTokens, PrepareContext, PruneToolOutputs, RecordUsage, RenderContext, RestoreToolOutputs,
            RevertCompaction,
        },
    },
    pb::{self, context_service_server::ContextService},
    turn::Engine,
};

/// Compactions per database read. A page takes as many reads as it needs.
const COMPACTIONS_PER_READ: u32 = 16;

/// ContextService on top of an engine.
#[derive(Debug, Clone)]
pub struct Contexts {
    engine: Arc<Engine>,
}

service! {
    ContextService for Contexts {
        get_context_stats: GetContextStatsRequest,
        compact: CompactRequest,
        prune_tool_outputs: PruneToolOutputsRequest,
        restore_tool_outputs: RestoreToolOutputsRequest,
        prepare_context: PrepareContextRequest,
        render_context: RenderContextRequest,
        count_tokens: CountTokensRequest,
        list_compactions: ListCompactionsRequest,
        revert_compaction: RevertCompactionRequest,
        record_usage: RecordUsageRequest,
    }
}

impl Contexts {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn get_context_stats(
        &self,
        caller: Principal,
        GetContextStats { session, model, as_text }: GetContextStats,
    ) -> Result<pb::GetContextStatsResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        let found = self.engine.prompts.context_stats(&key, model.as_deref()).await?;
        let stats = stats::to_pb(&found, &key.session);
        let text = if as_text { stats_text::text(&stats, found.budget.assumed) } else { String::new() };
        Ok(pb::GetContextStatsResponse { stats: Some(stats), text })
    }

    async fn compact(&self, caller: Principal, command: Compact) -> Result<pb::CompactResponse, Status> {
        let session = command.session.clone();
        let compaction = self.engine.sessions.compact(caller.tenant, command).await?;
        Ok(pb::CompactResponse { compaction: Some(codec::compaction::to_pb(&compaction, &session)) })
    }

    async fn prune_tool_outputs(
        &self,
        caller: Principal,
        command: PruneToolOutputs,
    ) -> Result<pb::PruneToolOutputsResponse, Status> {
        let report = self.engine.sessions.prune_tool_outputs(caller.tenant, command).await?;
        Ok(pb::PruneToolOutputsResponse { report: report.to_field() })
    }

    async fn restore_tool_outputs(
        &self,
        caller: Principal,
        command: RestoreToolOutputs,
    ) -> Result<pb::RestoreToolOutputsResponse, Status> {
        let restored = self.engine.sessions.restore_tool_outputs(caller.tenant, command).await?;
        let pb::ContextRestored { pruned_at_seq: _, call_ids, tokens_restored } = restored.to_field();
        Ok(pb::RestoreToolOutputsResponse { call_ids, tokens_restored })
    }

    async fn prepare_context(
        &self,
        caller: Principal,
        command: PrepareContext,
    ) -> Result<pb::PrepareContextResponse, Status> {
        let key = SessionKey::new(caller.tenant.clone(), command.session.clone());
        let (rendered, report) = self.engine.sessions.prepare_context(caller.tenant, command).await?;
        let report = Some(codec::ledger::prepare_report_to_pb(&report, &key.session));
        let prompt = prompt::to_pb(&self.engine, &key, rendered).await?;
        Ok(pb::PrepareContextResponse { prompt: Some(prompt), report })
    }

    async fn render_context(
        &self,
        caller: Principal,
        command: RenderContext,
    ) -> Result<pb::RenderContextResponse, Status> {
        let key = SessionKey::new(caller.tenant.clone(), command.session.clone());
        let rendered = self.engine.prompts.render(caller.tenant, command).await?;
        let prompt = prompt::to_pb(&self.engine, &key, rendered).await?;
        Ok(pb::RenderContextResponse { prompt: Some(prompt) })
    }

    async fn count_tokens(&self, caller: Principal, command: CountTokens) -> Result<pb::CountTokensResponse, Status> {
        let counts = self.engine.prompts.count_tokens(caller.tenant, command).await?;
        Ok(counts::counts(&counts))
    }

    async fn list_compactions(
        &self,
        caller: Principal,
        ListOfSession { session, page }: ListOfSession,
    ) -> Result<pb::ListCompactionsResponse, Status> {
        let key = SessionKey::new(caller.tenant, session);
        let mut page: Pager<String, _> =
            Pager::new("ListCompactions", format!("{}/{}", key.tenant, key.session), page)?;
        while let Some(most) = page.next_read(COMPACTIONS_PER_READ) {
            let before = page.position.clone().map(CompactionId::new);
            let read = self.engine.prompts.compactions(&key, before.as_ref(), most).await?;
            let has_more = read.len() == most as usize;
            for compaction in page.take(read, has_more) {
                if !page.push(compaction.id.to_field(), codec::compaction::to_pb(&compaction, &key.session)) {
                    break;
                }
            }
        }
        let (compactions, next_page_token) = page.finish();
        Ok(pb::ListCompactionsResponse { compactions, next_page_token })
    }

    async fn revert_compaction(
        &self,
        caller: Principal,
        command: RevertCompaction,
    ) -> Result<pb::RevertCompactionResponse, Status> {
        let session = command.session.clone();
        let (compaction, size) = self.engine.sessions.revert_compaction(caller.tenant, command).await?;
        Ok(pb::RevertCompactionResponse {
            compaction: Some(codec::compaction::to_pb(&compaction, &session)),
            context_tokens: size.to_field(),
        })
    }

    async fn record_usage(&self, caller: Principal, command: RecordUsage) -> Result<pb::RecordUsageResponse, Status> {
        let recorded = self.engine.sessions.record_usage(caller.tenant, command).await?;
        let (UsageReceipt { estimate, size }, calibration_ratio) = recorded;
        Ok(pb::RecordUsageResponse {
            estimate: estimate.to_field(),
            calibration_ratio,
            context_tokens: size.to_field(),
        })
    }
}
