//! Failures, to and from their proto form.

use crate::model::{Failure, FailurePhase, FailureReason};

use super::field::{choices, messages};

choices! {
    FailureReason = FailureReason {
        ProviderAuth, ProviderRateLimited, ProviderTimeout, ProviderOverloaded,
        ProviderBadRequest, ProviderBroken, ContextOverflow, Poisoned, Internal, ModelNotFound,
        PolicyNotFound,
    }
    FailurePhase = FailurePhase { Generate, Stream }
}

messages! {
    Failure = Failure {
        reason,
        message,
        recoverable,
        phase,
        provider,
        provider_status,
        provider_code,
        provider_request_id,
        retry_after,
        categories,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        codec::{
            arbitrary,
            field::{Field as _, round_trip},
        },
        pb,
    };

    proptest! {
        #[test]
        fn failures_round_trip(failure in arbitrary::failure()) {
            prop_assert_eq!(round_trip::<_, pb::Failure>(&failure), Ok(failure));
        }
    }

    #[test]
    fn a_failure_without_reason_is_an_error() {
        assert!(Failure::from_field("failure", pb::Failure::default()).is_err());
    }
}
