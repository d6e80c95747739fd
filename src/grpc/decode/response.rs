//! Decodes the model response that belongs to an assistant message appended by a host.

use super::{Findings, Path, json};
use crate::{
    codec::field::Field,
    model::{ModelResponse, Usage},
    pb::{
        self, FieldReason,
        limits::{TextLimit, model_response, usage},
    },
};

/// Decodes a model response. Reports violations, and returns `None` if it cannot be converted.
pub(super) fn read(at: Path<'_>, response: pb::ModelResponse, found: &mut Findings) -> Option<ModelResponse> {
    check_json(
        at.field("provider_metadata_json"),
        &response.provider_metadata_json,
        model_response::PROVIDER_METADATA_JSON,
        found,
    );
    if let Some(usage) = &response.usage {
        check_usage(at.field("usage"), usage, found);
    }
    let failure = response.failure.as_ref();
    if failure.is_some_and(|failure| !failure.categories.is_empty()) {
        found.invalid(
            at.field("failure").field("categories"),
            FieldReason::Unsupported,
            "are only allowed in the failure of a turn",
        );
    }
    Field::from_field("response", response).ok()
}

/// Decodes the usage of a model call. Reports violations, and returns `None` if it cannot be converted.
pub(super) fn usage(at: Path<'_>, usage: pb::Usage, found: &mut Findings) -> Option<Usage> {
    check_usage(at, &usage, found);
    Field::from_field("usage", usage).ok()
}

fn check_usage(at: Path<'_>, usage: &pb::Usage, found: &mut Findings) {
    check_json(at.field("provider_usage_json"), &usage.provider_usage_json, usage::PROVIDER_USAGE_JSON, found);
}

/// Reports a text within its limit that is neither empty nor a JSON object.
fn check_json(at: Path<'_>, text: &str, limit: TextLimit, found: &mut Findings) {
    if !text.is_empty() && limit.fits(text) {
        json::check_object(at, text, found);
    }
}
