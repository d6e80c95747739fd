//! Decodes the requests about a session's context.

use super::{
    Findings, Path,
    hash::{idempotency, request_hash},
    number, response, text,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        MessageId, PromptFormat, Seq, SessionId, UsagePurpose,
        command::{PrepareContext, PruneToolOutputs, RecordUsage, RenderContext, RestoreToolOutputs},
        config::PruneOverrides,
    },
    pb::{self, rpc},
};

/// A validated request of GetContextStats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetContextStats {
    pub session: SessionId,
    /// Compute the statistics for this model. `None` for the session's model.
    pub model: Option<String>,
    /// Whether to format the statistics as text too.
    pub as_text: bool,
}

/// Decodes a GetContextStatsRequest.
pub fn get_context_stats(mut request: pb::GetContextStatsRequest) -> Result<GetContextStats, RequestError> {
    let found = Findings::check(rpc::GET_CONTEXT_STATS, &mut request);
    let pb::GetContextStatsRequest { session_id, model, format } = request;
    let get = GetContextStats {
        session: SessionId::new(session_id),
        model: text::non_empty(model),
        as_text: match number::choice(format) {
            Some(pb::StatsFormat::Text) => true,
            Some(pb::StatsFormat::Unspecified) | None => false,
        },
    };
    found.finish(get)
}

/// Decodes a PruneToolOutputsRequest.
pub fn prune_tool_outputs(mut request: pb::PruneToolOutputsRequest) -> Result<PruneToolOutputs, RequestError> {
    let found = Findings::check(rpc::PRUNE_TOOL_OUTPUTS, &mut request);
    let hash = request_hash(rpc::PRUNE_TOOL_OUTPUTS, &request);
    let pb::PruneToolOutputsRequest {
        session_id,
        request_id,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        validate_only,
    } = request;
    let overrides = PruneOverrides {
        minimum_tokens: number::optional_count(minimum_tokens),
        protect_tokens: number::optional_count(protect_tokens),
        protect_turns: number::optional_count(protect_turns),
        ..PruneOverrides::default()
    };
    let prune = PruneToolOutputs {
        session: SessionId::new(session_id),
        overrides,
        dry_run: validate_only,
        idempotency: idempotency(request_id, hash),
    };
    found.finish(prune)
}

/// Decodes a RestoreToolOutputsRequest.
pub fn restore_tool_outputs(mut request: pb::RestoreToolOutputsRequest) -> Result<RestoreToolOutputs, RequestError> {
    let found = Findings::check(rpc::RESTORE_TOOL_OUTPUTS, &mut request);
    let hash = request_hash(rpc::RESTORE_TOOL_OUTPUTS, &request);
    let pb::RestoreToolOutputsRequest { session_id, pruned_at_seq, request_id } = request;
    let restore = RestoreToolOutputs {
        session: SessionId::new(session_id),
        pruned_at: Seq(pruned_at_seq),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(restore)
}

/// Decodes a RenderContextRequest.
pub fn render_context(mut request: pb::RenderContextRequest) -> Result<RenderContext, RequestError> {
    let found = Findings::check(rpc::RENDER_CONTEXT, &mut request);
    let pb::RenderContextRequest { session_id, model, format, at_seq } = request;
    let render = RenderContext {
        session: SessionId::new(session_id),
        model: text::non_empty(model),
        format: shape(format),
        at: number::optional_seq(at_seq),
    };
    found.finish(render)
}

/// Decodes a PrepareContextRequest.
pub fn prepare_context(mut request: pb::PrepareContextRequest) -> Result<PrepareContext, RequestError> {
    let found = Findings::check(rpc::PREPARE_CONTEXT, &mut request);
    let hash = request_hash(rpc::PREPARE_CONTEXT, &request);
    let pb::PrepareContextRequest { session_id, request_id, model, format, apply_queued_messages } = request;
    let prepare = PrepareContext {
        session: SessionId::new(session_id),
        idempotency: idempotency(request_id, hash),
        model: text::non_empty(model),
        format: shape(format),
        applies_queued: apply_queued_messages,
    };
    found.finish(prepare)
}

/// Decodes a RecordUsageRequest.
pub fn record_usage(mut request: pb::RecordUsageRequest) -> Result<RecordUsage, RequestError> {
    let mut found = Findings::check(rpc::RECORD_USAGE, &mut request);
    let hash = request_hash(rpc::RECORD_USAGE, &request);
    let pb::RecordUsageRequest { session_id, request_id, model, usage, purpose, message_id, context_version } = request;
    let purpose = match number::choice(purpose) {
        Some(pb::UsagePurpose::Compaction) => UsagePurpose::Compaction,
        Some(pb::UsagePurpose::Unspecified | pb::UsagePurpose::Turn) | None => UsagePurpose::Turn,
    };
    let record = RecordUsage {
        session: SessionId::new(session_id),
        idempotency: idempotency(request_id, hash),
        model: text::non_empty(model),
        usage: usage.and_then(|it| response::usage(Path::to("usage"), it, &mut found)).unwrap_or_default(),
        purpose,
        message: text::non_empty(message_id).map(MessageId::new),
        version: number::large_count(context_version),
    };
    found.finish(record)
}

/// Decodes the format of a prompt.
fn shape(format: i32) -> PromptFormat {
    number::choice(format).map_or(PromptFormat::Neutral, shape_of)
}

/// Converts the format of a prompt from the wire.
pub(super) fn shape_of(format: pb::PromptFormat) -> PromptFormat {
    use pb::PromptFormat as Format;
    match format {
        Format::Unspecified | Format::Neutral => PromptFormat::Neutral,
        Format::OpenaiChat => PromptFormat::OpenAiChat,
        Format::OpenaiResponses => PromptFormat::OpenAiResponses,
        Format::Anthropic => PromptFormat::Anthropic,
        Format::Gemini => PromptFormat::Gemini,
        Format::Native => PromptFormat::Native,
        Format::AiSdk => PromptFormat::AiSdk,
        Format::AiSdk7 => PromptFormat::AiSdk7,
    }
}
