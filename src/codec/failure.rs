//! Failures, to and from their proto form.

use crate::{
    model::{Failure, FailurePhase, FailureReason},
    pb,
};

use super::{DecodeError, category, number, time};

/// Converts a failure for the wire.
pub fn to_pb(failure: &Failure) -> pb::Failure {
    let Failure {
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
    } = failure;
    pb::Failure {
        reason: reason_to_pb(*reason).into(),
        message: message.clone(),
        recoverable: *recoverable,
        phase: phase_to_pb(*phase).into(),
        provider: provider.clone(),
        provider_status: (*provider_status).into(),
        provider_code: provider_code.clone(),
        provider_request_id: provider_request_id.clone(),
        retry_after: retry_after.map(time::duration_to_pb),
        categories: categories.iter().map(category::share_to_pb).collect(),
    }
}

/// Reads a stored failure.
pub fn from_pb(failure: pb::Failure) -> Result<Failure, DecodeError> {
    let pb::Failure {
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
    } = failure;
    Ok(Failure {
        reason: reason_from_pb(number::known("failure reason", reason)?)?,
        message,
        recoverable,
        phase: phase_from_pb(number::known("failure phase", phase)?),
        provider,
        provider_status: u16::try_from(provider_status).map_err(|_| {
            DecodeError::new(
                "failure",
                format_args!("{provider_status} is not an HTTP status"),
            )
        })?,
        provider_code,
        provider_request_id,
        retry_after: retry_after.map(time::duration_from_pb).transpose()?,
        categories: categories
            .into_iter()
            .map(category::share_from_pb)
            .collect::<Result<_, _>>()?,
    })
}

/// Converts the reason of a failure.
pub fn reason_to_pb(reason: FailureReason) -> pb::FailureReason {
    match reason {
        FailureReason::ProviderAuth => pb::FailureReason::ProviderAuth,
        FailureReason::ProviderRateLimited => pb::FailureReason::ProviderRateLimited,
        FailureReason::ProviderTimeout => pb::FailureReason::ProviderTimeout,
        FailureReason::ProviderOverloaded => pb::FailureReason::ProviderOverloaded,
        FailureReason::ProviderBadRequest => pb::FailureReason::ProviderBadRequest,
        FailureReason::ProviderBroken => pb::FailureReason::ProviderBroken,
        FailureReason::ContextOverflow => pb::FailureReason::ContextOverflow,
        FailureReason::Poisoned => pb::FailureReason::Poisoned,
        FailureReason::Internal => pb::FailureReason::Internal,
        FailureReason::ModelNotFound => pb::FailureReason::ModelNotFound,
        FailureReason::PolicyNotFound => pb::FailureReason::PolicyNotFound,
    }
}

fn reason_from_pb(reason: pb::FailureReason) -> Result<FailureReason, DecodeError> {
    match reason {
        pb::FailureReason::Unspecified => Err(DecodeError::new("failure", "its reason is missing")),
        pb::FailureReason::ProviderAuth => Ok(FailureReason::ProviderAuth),
        pb::FailureReason::ProviderRateLimited => Ok(FailureReason::ProviderRateLimited),
        pb::FailureReason::ProviderTimeout => Ok(FailureReason::ProviderTimeout),
        pb::FailureReason::ProviderOverloaded => Ok(FailureReason::ProviderOverloaded),
        pb::FailureReason::ProviderBadRequest => Ok(FailureReason::ProviderBadRequest),
        pb::FailureReason::ProviderBroken => Ok(FailureReason::ProviderBroken),
        pb::FailureReason::ContextOverflow => Ok(FailureReason::ContextOverflow),
        pb::FailureReason::Poisoned => Ok(FailureReason::Poisoned),
        pb::FailureReason::Internal => Ok(FailureReason::Internal),
        pb::FailureReason::ModelNotFound => Ok(FailureReason::ModelNotFound),
        pb::FailureReason::PolicyNotFound => Ok(FailureReason::PolicyNotFound),
    }
}

fn phase_to_pb(phase: Option<FailurePhase>) -> pb::FailurePhase {
    match phase {
        None => pb::FailurePhase::Unspecified,
        Some(FailurePhase::Generate) => pb::FailurePhase::Generate,
        Some(FailurePhase::Stream) => pb::FailurePhase::Stream,
    }
}

fn phase_from_pb(phase: pb::FailurePhase) -> Option<FailurePhase> {
    match phase {
        pb::FailurePhase::Unspecified => None,
        pb::FailurePhase::Generate => Some(FailurePhase::Generate),
        pb::FailurePhase::Stream => Some(FailurePhase::Stream),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn failures_round_trip(failure in arbitrary::failure()) {
            prop_assert_eq!(from_pb(to_pb(&failure)), Ok(failure));
        }
    }

    #[test]
    fn a_failure_without_reason_is_an_error() {
        assert!(from_pb(pb::Failure::default()).is_err());
    }
}
