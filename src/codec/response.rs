//! The model call that produced an assistant message, to and from its proto form.

use crate::{
    model::{FinishReason, ModelResponse},
    pb,
};

use super::{DecodeError, failure, time, usage};

/// Converts a model call for the wire.
pub fn to_pb(response: &ModelResponse) -> pb::ModelResponse {
    let ModelResponse {
        provider,
        model,
        provider_model,
        provider_response_id,
        finish,
        provider_finish,
        usage,
        failure,
        time_to_first_token,
        elapsed,
        provider_metadata,
        prompt_fingerprint,
    } = response;
    pb::ModelResponse {
        provider: provider.clone(),
        model: model.clone(),
        provider_model: provider_model.clone(),
        provider_response_id: provider_response_id.clone(),
        finish_reason: finish_to_pb(*finish).into(),
        provider_finish_reason: provider_finish.clone(),
        usage: usage.as_ref().map(usage::to_pb),
        failure: failure.as_ref().map(failure::to_pb),
        time_to_first_token: time_to_first_token.map(time::duration_to_pb),
        elapsed: Some(time::duration_to_pb(*elapsed)),
        provider_metadata_json: provider_metadata.clone().unwrap_or_default(),
        prompt_fingerprint: prompt_fingerprint.clone().unwrap_or_default(),
    }
}

/// Reads a stored model call.
pub fn from_pb(response: pb::ModelResponse) -> Result<ModelResponse, DecodeError> {
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
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(ModelResponse {
        provider,
        model,
        provider_model,
        provider_response_id,
        // A value from a newer version is treated as the API specifies.
        finish: finish_from_pb(
            pb::FinishReason::try_from(finish_reason).unwrap_or(pb::FinishReason::Unspecified),
        ),
        provider_finish: provider_finish_reason,
        usage: usage.map(usage::from_pb).transpose()?,
        failure: failure.map(failure::from_pb).transpose()?,
        time_to_first_token: time_to_first_token
            .map(time::duration_from_pb)
            .transpose()?,
        elapsed: elapsed
            .map(time::duration_from_pb)
            .transpose()?
            .unwrap_or_default(),
        provider_metadata: some(provider_metadata_json),
        prompt_fingerprint: some(prompt_fingerprint),
    })
}

/// Converts a finish reason.
pub fn finish_to_pb(finish: FinishReason) -> pb::FinishReason {
    match finish {
        FinishReason::Stop => pb::FinishReason::Stop,
        FinishReason::ToolCalls => pb::FinishReason::ToolCalls,
        FinishReason::Length => pb::FinishReason::Length,
        FinishReason::ContentFilter => pb::FinishReason::ContentFilter,
        FinishReason::Refusal => pb::FinishReason::Refusal,
        FinishReason::Error => pb::FinishReason::Error,
        FinishReason::Cancelled => pb::FinishReason::Cancelled,
        FinishReason::Paused => pb::FinishReason::Paused,
    }
}

fn finish_from_pb(finish: pb::FinishReason) -> FinishReason {
    match finish {
        // As the proto specifies, an unknown reason is treated like STOP.
        pb::FinishReason::Unspecified | pb::FinishReason::Stop => FinishReason::Stop,
        pb::FinishReason::ToolCalls => FinishReason::ToolCalls,
        pb::FinishReason::Length => FinishReason::Length,
        pb::FinishReason::ContentFilter => FinishReason::ContentFilter,
        pb::FinishReason::Refusal => FinishReason::Refusal,
        pb::FinishReason::Error => FinishReason::Error,
        pb::FinishReason::Cancelled => FinishReason::Cancelled,
        pb::FinishReason::Paused => FinishReason::Paused,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn response_infos_round_trip(response in arbitrary::response()) {
            prop_assert_eq!(from_pb(to_pb(&response)), Ok(response));
        }
    }
}
