//! Decodes the requests about a session's context.

use super::{
    Findings, Path, config,
    hash::{idempotency, request_hash},
    id, number,
    policy::optional_count,
    response, text,
};
use crate::{
    grpc::violations::RequestError,
    model::{
        PromptFormat, SessionId, UsagePurpose,
        command::{
            PrepareContext, PruneToolOutputs, RecordUsage, RenderContext, RestoreToolOutputs,
        },
        config::PruneOverrides,
    },
    pb,
};

pub const GET_CONTEXT_STATS: &str = "contextd.v1.ContextService/GetContextStats";
pub const PRUNE_TOOL_OUTPUTS: &str = "contextd.v1.ContextService/PruneToolOutputs";
pub const RESTORE_TOOL_OUTPUTS: &str = "contextd.v1.ContextService/RestoreToolOutputs";
pub const RENDER_CONTEXT: &str = "contextd.v1.ContextService/RenderContext";
pub const RECORD_USAGE: &str = "contextd.v1.ContextService/RecordUsage";
pub const PREPARE_CONTEXT: &str = "contextd.v1.ContextService/PrepareContext";

/// Maximum length of a model reference, in characters.
const MAX_MODEL_LENGTH: text::MaxLength = text::MaxLength::Chars(256);

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
pub fn get_context_stats(
    request: pb::GetContextStatsRequest,
) -> Result<GetContextStats, RequestError> {
    let mut found = Findings::of(GET_CONTEXT_STATS);
    let pb::GetContextStatsRequest {
        session_id,
        model,
        format,
    } = request;
    text::check_length(Path::to("model"), &model, MAX_MODEL_LENGTH, &mut found);
    let get = GetContextStats {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        model: Some(model).filter(|model| !model.is_empty()),
        as_text: match number::enum_value(Path::to("format"), format, &mut found) {
            Some(pb::StatsFormat::Text) => true,
            Some(pb::StatsFormat::Unspecified) | None => false,
        },
    };
    found.finish(get)
}

/// Decodes a PruneToolOutputsRequest.
pub fn prune_tool_outputs(
    request: pb::PruneToolOutputsRequest,
) -> Result<PruneToolOutputs, RequestError> {
    let mut found = Findings::of(PRUNE_TOOL_OUTPUTS);
    let hash = request_hash(PRUNE_TOOL_OUTPUTS, &request);
    let pb::PruneToolOutputsRequest {
        session_id,
        request_id,
        minimum_tokens,
        protect_tokens,
        protect_turns,
        validate_only,
    } = request;
    let overrides = PruneOverrides {
        minimum_tokens: optional_count(Path::to("minimum_tokens"), minimum_tokens, &mut found),
        protect_tokens: optional_count(Path::to("protect_tokens"), protect_tokens, &mut found),
        protect_turns: optional_count(Path::to("protect_turns"), protect_turns, &mut found),
        ..PruneOverrides::default()
    };
    let prune = PruneToolOutputs {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        overrides,
        dry_run: validate_only,
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(prune)
}

/// Decodes a RestoreToolOutputsRequest.
pub fn restore_tool_outputs(
    request: pb::RestoreToolOutputsRequest,
) -> Result<RestoreToolOutputs, RequestError> {
    let mut found = Findings::of(RESTORE_TOOL_OUTPUTS);
    let hash = request_hash(RESTORE_TOOL_OUTPUTS, &request);
    let pb::RestoreToolOutputsRequest {
        session_id,
        pruned_at_seq,
        request_id,
    } = request;
    let at = Path::to("pruned_at_seq");
    if pruned_at_seq == 0 {
        found.required(at);
    }
    let restore = RestoreToolOutputs {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        pruned_at: number::seq(at, pruned_at_seq, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
    };
    found.finish(restore)
}

/// Decodes a RenderContextRequest.
pub fn render_context(request: pb::RenderContextRequest) -> Result<RenderContext, RequestError> {
    let mut found = Findings::of(RENDER_CONTEXT);
    let pb::RenderContextRequest {
        session_id,
        model,
        format,
        at_seq,
    } = request;
    let model = config::model(Path::to("model"), model, &mut found);
    let render = RenderContext {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        model: (!model.is_empty()).then_some(model),
        format: shape(Path::to("format"), format, &mut found),
        at: number::optional_seq(Path::to("at_seq"), at_seq, &mut found),
    };
    found.finish(render)
}

/// Decodes a PrepareContextRequest.
pub fn prepare_context(request: pb::PrepareContextRequest) -> Result<PrepareContext, RequestError> {
    let mut found = Findings::of(PREPARE_CONTEXT);
    let hash = request_hash(PREPARE_CONTEXT, &request);
    let pb::PrepareContextRequest {
        session_id,
        request_id,
        model,
        format,
        apply_queued_messages,
    } = request;
    let model = config::model(Path::to("model"), model, &mut found);
    let prepare = PrepareContext {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        model: (!model.is_empty()).then_some(model),
        format: shape(Path::to("format"), format, &mut found),
        applies_queued: apply_queued_messages,
    };
    found.finish(prepare)
}

/// Decodes a RecordUsageRequest.
pub fn record_usage(request: pb::RecordUsageRequest) -> Result<RecordUsage, RequestError> {
    let mut found = Findings::of(RECORD_USAGE);
    let hash = request_hash(RECORD_USAGE, &request);
    let pb::RecordUsageRequest {
        session_id,
        request_id,
        model,
        usage,
        purpose,
        message_id,
        context_version,
    } = request;
    let model = config::model(Path::to("model"), model, &mut found);
    let at_usage = Path::to("usage");
    if usage.is_none() {
        found.required(at_usage);
    }
    let purpose = match number::enum_value(Path::to("purpose"), purpose, &mut found) {
        Some(pb::UsagePurpose::Compaction) => UsagePurpose::Compaction,
        Some(pb::UsagePurpose::Unspecified | pb::UsagePurpose::Turn) | None => UsagePurpose::Turn,
    };
    let record = RecordUsage {
        session: id::session(Path::to("session_id"), session_id, &mut found),
        idempotency: idempotency(request_id, hash, &mut found),
        model: (!model.is_empty()).then_some(model),
        usage: usage
            .and_then(|it| response::usage(at_usage, it, &mut found))
            .unwrap_or_default(),
        purpose,
        message: (!message_id.is_empty())
            .then(|| id::message(Path::to("message_id"), message_id, &mut found)),
        version: number::large_count(Path::to("context_version"), context_version, &mut found),
    };
    found.finish(record)
}

/// Decodes the format of a prompt.
fn shape(at: Path<'_>, format: i32, found: &mut Findings) -> PromptFormat {
    number::enum_value(at, format, found).map_or(PromptFormat::Neutral, shape_of)
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
