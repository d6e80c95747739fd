//! The model call that produced an assistant message, to and from its proto form.

use crate::model::{FinishReason, ModelResponse};

use super::field::{choices, messages};

choices! {
    // As the proto specifies, an unknown reason is treated like STOP.
    FinishReason = FinishReason {
        Stop, ToolCalls, Length, ContentFilter, Refusal, Error, Cancelled, Paused;
        Unspecified => Stop
    }
}

messages! {
    ModelResponse = ModelResponse {
        provider,
        model,
        provider_model,
        provider_response_id,
        finish = finish_reason via newer_is_unspecified,
        provider_finish = provider_finish_reason,
        usage,
        failure,
        time_to_first_token,
        elapsed,
        provider_metadata = provider_metadata_json,
        prompt_fingerprint,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        codec::{arbitrary, field::round_trip},
        pb,
    };

    proptest! {
        #[test]
        fn response_infos_round_trip(response in arbitrary::response()) {
            prop_assert_eq!(round_trip::<_, pb::ModelResponse>(&response), Ok(response));
        }
    }
}
