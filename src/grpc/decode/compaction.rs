//! Decodes the requests about compactions: Compact, ListCompactions and RevertCompaction.

use super::{
    Findings, Path,
    hash::{idempotency, request_hash},
    number,
    page::{self, PageRequest},
    policy, text,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        CompactionId, SessionId,
        command::{Compact, RevertCompaction},
        compaction::CompactionOverrides,
    },
    pb::{self, rpc},
};

/// A validated request of ListCompactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCompactions {
    pub session: SessionId,
    pub page: PageRequest,
}

/// Decodes a CompactRequest.
pub fn compact(mut request: pb::CompactRequest) -> Result<Compact, RequestError> {
    let mut found = Findings::check(rpc::COMPACT, &mut request);
    let hash = request_hash(rpc::COMPACT, &pb::CompactRequest { wait: false, ..request.clone() });
    let pb::CompactRequest {
        session_id,
        request_id,
        strategy,
        target_tokens,
        instructions,
        instructions_mode,
        summary_model,
        wait,
        validate_only,
    } = request;
    let session = SessionId::new(session_id);
    let idempotency = idempotency(request_id, hash);
    let strategy = policy::strategy(Path::to("strategy"), strategy, &mut found);
    let target = number::count(target_tokens);
    let mode = policy::instructions_mode(Path::to("instructions_mode"), instructions_mode, &mut found);
    policy::check_summary_model(Path::to("summary_model"), &summary_model, &mut found);
    let summary_model = text::non_empty(summary_model);
    let compact = Compact {
        session,
        overrides: CompactionOverrides { strategy, summary_model, ..CompactionOverrides::default() },
        instructions: (instructions, mode.unwrap_or_default()),
        target,
        wait,
        dry_run: validate_only,
        idempotency,
    };
    found.finish(compact)
}

/// Decodes a ListCompactionsRequest.
pub fn list_compactions(mut request: pb::ListCompactionsRequest) -> Result<ListCompactions, RequestError> {
    let found = Findings::check(rpc::LIST_COMPACTIONS, &mut request);
    let pb::ListCompactionsRequest { session_id, page_size, page_token } = request;
    let list = ListCompactions { session: SessionId::new(session_id), page: page::page(page_size, page_token) };
    found.finish(list)
}

/// Decodes a RevertCompactionRequest.
pub fn revert_compaction(mut request: pb::RevertCompactionRequest) -> Result<RevertCompaction, RequestError> {
    let found = Findings::check(rpc::REVERT_COMPACTION, &mut request);
    let hash = request_hash(rpc::REVERT_COMPACTION, &request);
    let pb::RevertCompactionRequest { session_id, compaction_id, request_id } = request;
    let revert = RevertCompaction {
        session: SessionId::new(session_id),
        compaction: CompactionId::new(compaction_id),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(revert)
}
