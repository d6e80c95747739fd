//! Decodes the requests about compactions: Compact, ListCompactions and RevertCompaction.

use super::{
    Findings, Path,
    hash::{idempotency, request_hash},
    id, number,
    page::{self, PageRequest},
    policy,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        SessionId,
        command::{Compact, RevertCompaction},
        compaction::CompactionOverrides,
    },
    pb,
};

pub const COMPACT: &str = "contextd.v1.ContextService/Compact";
pub const LIST_COMPACTIONS: &str = "contextd.v1.ContextService/ListCompactions";
pub const REVERT_COMPACTION: &str = "contextd.v1.ContextService/RevertCompaction";

/// A validated request of ListCompactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCompactions {
    pub session: SessionId,
    pub page: PageRequest,
}

/// Decodes a CompactRequest.
pub fn compact(request: pb::CompactRequest) -> Result<Compact, RequestError> {
    let mut found = Findings::of(COMPACT);
    let hash = request_hash(
        COMPACT,
        &pb::CompactRequest {
            wait: false,
            ..request.clone()
        },
    );
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
    let session = id::session(Path::to("session_id"), session_id, &mut found);
    let idempotency = idempotency(request_id, hash, &mut found);
    let strategy = policy::strategy(Path::to("strategy"), strategy, &mut found);
    let target = number::count(Path::to("target_tokens"), target_tokens, &mut found);
    let instructions = policy::instructions(Path::to("instructions"), instructions, &mut found)
        .unwrap_or_default();
    let mode =
        policy::instructions_mode(Path::to("instructions_mode"), instructions_mode, &mut found);
    policy::check_summary_model(Path::to("summary_model"), &summary_model, &mut found);
    let summary_model = Some(summary_model).filter(|model| !model.is_empty());
    let compact = Compact {
        session,
        overrides: CompactionOverrides {
            strategy,
            summary_model,
            ..CompactionOverrides::default()
        },
        instructions: (instructions, mode.unwrap_or_default()),
        target,
        wait,
        dry_run: validate_only,
        idempotency,
    };
    found.finish(compact)
}

/// Decodes a ListCompactionsRequest.
pub fn list_compactions(
    request: pb::ListCompactionsRequest,
) -> Result<ListCompactions, RequestError> {
    let mut found = Findings::of(LIST_COMPACTIONS);
    let pb::ListCompactionsRequest {
        session_id,
        page_size,
        page_token,
    } = request;
    let list = ListCompactions {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        page: page::page(page_size, page_token, &mut found),
    };
    found.finish(list)
}

/// Decodes a RevertCompactionRequest.
pub fn revert_compaction(
    request: pb::RevertCompactionRequest,
) -> Result<RevertCompaction, RequestError> {
    let mut found = Findings::of(REVERT_COMPACTION);
    let hash = request_hash(REVERT_COMPACTION, &request);
    let pb::RevertCompactionRequest {
        session_id,
        compaction_id,
        request_id,
    } = request;
    let revert = RevertCompaction {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        compaction: id::compaction(Path::to("compaction_id"), compaction_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(revert)
}
