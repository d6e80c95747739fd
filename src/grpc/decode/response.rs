//! Decodes the model response that belongs to an assistant message appended by a host.

use super::{
    Findings, Path, duration, json, number,
    text::{self, KIB, MaxLength},
};
use crate::{
    codec,
    model::{ModelResponse, Usage},
    pb::{self, FieldReason},
};

/// Maximum length of a name or an id, in characters.
const MAX_NAME_LENGTH: MaxLength = MaxLength::Chars(256);
/// Maximum length of a failure message, in characters.
const MAX_FAILURE_MESSAGE_LENGTH: MaxLength = MaxLength::Chars(1_024);
/// Maximum size of the provider's usage object, in bytes.
const MAX_USAGE_SIZE: MaxLength = MaxLength::Bytes(64 * KIB);
/// Maximum size of the provider's metadata, in bytes.
const MAX_METADATA_SIZE: MaxLength = MaxLength::Bytes(64 * KIB);
/// HTTP status codes, or 0 for none.
const STATUSES: std::ops::RangeInclusive<i32> = 0..=599;

/// Decodes a model response. Reports violations, and returns `None` if it cannot be converted.
pub(super) fn read(
    at: Path<'_>,
    response: pb::ModelResponse,
    found: &mut Findings,
) -> Option<ModelResponse> {
    check(at, response.clone(), found);
    codec::response::from_pb(response).ok()
}

/// Decodes the usage of a model call. Reports violations, and returns `None` if it cannot be converted.
pub(super) fn usage(at: Path<'_>, usage: pb::Usage, found: &mut Findings) -> Option<Usage> {
    check_usage(at, usage.clone(), found);
    codec::usage::from_pb(usage).ok()
}

fn check(at: Path<'_>, response: pb::ModelResponse, found: &mut Findings) {
    let pb::ModelResponse {
        provider,
        model,
        provider_model,
        provider_response_id,
        finish_reason,
        provider_finish_reason,
        usage,
        failure,
        time_to_first_token,
        elapsed,
        provider_metadata_json,
        prompt_fingerprint,
    } = response;
    names(
        at,
        [
            ("provider", provider),
            ("model", model),
            ("provider_model", provider_model),
            ("provider_response_id", provider_response_id),
            ("provider_finish_reason", provider_finish_reason),
            ("prompt_fingerprint", prompt_fingerprint),
        ],
        found,
    );
    let metadata = at.field("provider_metadata_json");
    text::check_length(metadata, &provider_metadata_json, MAX_METADATA_SIZE, found);
    json::optional_object(metadata, provider_metadata_json, found);
    number::enum_value::<pb::FinishReason>(at.field("finish_reason"), finish_reason, found);
    if let Some(usage) = usage {
        check_usage(at.field("usage"), usage, found);
    }
    if let Some(failure) = failure {
        check_failure(at.field("failure"), failure, found);
    }
    for (field, time) in [
        ("time_to_first_token", time_to_first_token),
        ("elapsed", elapsed),
    ] {
        time.and_then(|time| duration::any(at.field(field), time, found));
    }
}

fn names<const N: usize>(at: Path<'_>, names: [(&'static str, String); N], found: &mut Findings) {
    for (field, name) in names {
        text::single_line(at.field(field), name, MAX_NAME_LENGTH, found);
    }
}

fn check_usage(at: Path<'_>, usage: pb::Usage, found: &mut Findings) {
    let pb::Usage {
        input_tokens,
        output_tokens,
        reasoning_tokens,
        cache_read_tokens,
        cache_write_tokens,
        total_tokens: _,
        provider_usage_json,
        provider_tool_calls,
    } = usage;
    let counts = [
        ("input_tokens", input_tokens),
        ("output_tokens", output_tokens),
        ("reasoning_tokens", reasoning_tokens),
        ("cache_read_tokens", cache_read_tokens),
        ("cache_write_tokens", cache_write_tokens),
        ("provider_tool_calls", provider_tool_calls),
    ];
    for (field, count) in counts {
        number::not_negative(at.field(field), count.into(), found);
    }
    let at = at.field("provider_usage_json");
    text::check_length(at, &provider_usage_json, MAX_USAGE_SIZE, found);
    json::optional_object(at, provider_usage_json, found);
}

fn check_failure(at: Path<'_>, failure: pb::Failure, found: &mut Findings) {
    let pb::Failure {
        reason,
        message,
        recoverable: _,
        phase,
        provider,
        provider_status,
        provider_code,
        provider_request_id,
        retry_after,
        categories,
    } = failure;
    match number::enum_value(at.field("reason"), reason, found) {
        Some(pb::FailureReason::Unspecified) => found.required(at.field("reason")),
        Some(
            pb::FailureReason::ProviderAuth
            | pb::FailureReason::ProviderRateLimited
            | pb::FailureReason::ProviderTimeout
            | pb::FailureReason::ProviderOverloaded
            | pb::FailureReason::ProviderBadRequest
            | pb::FailureReason::ProviderBroken
            | pb::FailureReason::ContextOverflow
            | pb::FailureReason::Poisoned
            | pb::FailureReason::Internal
            | pb::FailureReason::ModelNotFound
            | pb::FailureReason::PolicyNotFound,
        )
        | None => {}
    }
    text::check_length(
        at.field("message"),
        &message,
        MAX_FAILURE_MESSAGE_LENGTH,
        found,
    );
    number::enum_value::<pb::FailurePhase>(at.field("phase"), phase, found);
    names(
        at,
        [
            ("provider", provider),
            ("provider_code", provider_code),
            ("provider_request_id", provider_request_id),
        ],
        found,
    );
    number::within(
        at.field("provider_status"),
        &provider_status,
        &STATUSES,
        found,
    );
    retry_after.and_then(|time| duration::any(at.field("retry_after"), time, found));
    if !categories.is_empty() {
        found.invalid(
            at.field("categories"),
            FieldReason::Unsupported,
            "are only allowed in the failure of a turn",
        );
    }
}
