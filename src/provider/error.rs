//! What can go wrong with a model call; each kind asks for another reaction.

use std::time::Duration;

use crate::model::{Failure, FailurePhase, FailureReason};

/// Why a model call failed. Messages are free of secrets and of prompt content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct Error {
    /// The kind.
    pub kind: Kind,
    /// Configured name of the provider.
    pub provider: String,
    /// One sentence for people.
    pub message: String,
    /// HTTP status of the answer; 0 when there was none.
    pub status: u16,
    /// The provider's own error code; empty when there was none.
    pub code: String,
    /// The provider's id of the request; empty when unknown.
    pub request_id: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// What is known about repeating the call, beyond the kind.
    pub should_retry: Option<bool>,
}

/// Codes of services for a model that they do not have, or not any more, whatever the status is.
const GONE_CODES: &[&str] = &[
    "model_not_found",
    "model_not_exist",
    "model_decommissioned", // Groq
    "model_not_available",
    "not_found_error", // Anthropic
    "NOT_FOUND",       // Gemini
];

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The credentials were refused.
    Auth,
    /// Too many requests or tokens.
    RateLimited,
    /// No answer in time, or a stall.
    Timeout,
    /// Overloaded, or a server error.
    Overloaded,
    /// The request was refused as invalid.
    BadRequest,
    /// The prompt is too long for the model.
    TooLong,
    /// Not reachable, broke off, or unreadable.
    Broken,
}

impl Kind {
    /// Its name in metrics and spans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::RateLimited => "rate_limited",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::BadRequest => "bad_request",
            Self::TooLong => "too_long",
            Self::Broken => "broken",
        }
    }
}

impl Error {
    /// An error that did not come in an answer of the provider.
    pub fn new(kind: Kind, provider: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            provider: provider.into(),
            message: message.into(),
            status: 0,
            code: String::new(),
            request_id: String::new(),
            retry_after: None,
            should_retry: None,
        }
    }

    /// Whether the same call may succeed later. A prompt that is too long stays so, whatever the
    /// provider says.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            Kind::RateLimited | Kind::Timeout | Kind::Overloaded | Kind::Broken => {
                self.should_retry.unwrap_or(true)
            }
            Kind::Auth | Kind::BadRequest => self.should_retry.unwrap_or(false),
            Kind::TooLong => false,
        }
    }

    /// Whether another model may answer what this one did not: it, its service or the account there
    /// is at fault, not the request. A service refuses a model that it does not have (any more) as
    /// not found, or by a code.
    pub fn another_model_may_answer(&self) -> bool {
        match self.kind {
            Kind::Auth | Kind::RateLimited | Kind::Timeout | Kind::Overloaded | Kind::Broken => {
                true
            }
            Kind::BadRequest => {
                matches!(self.status, 404 | 410) || GONE_CODES.contains(&self.code.as_str())
            }
            Kind::TooLong => false,
        }
    }

    /// The failure that clients get.
    pub fn to_failure(&self, phase: FailurePhase) -> Failure {
        let reason = match self.kind {
            Kind::Auth => FailureReason::ProviderAuth,
            Kind::RateLimited => FailureReason::ProviderRateLimited,
            Kind::Timeout => FailureReason::ProviderTimeout,
            Kind::Overloaded => FailureReason::ProviderOverloaded,
            Kind::BadRequest => FailureReason::ProviderBadRequest,
            Kind::TooLong => FailureReason::ContextOverflow,
            Kind::Broken => FailureReason::ProviderBroken,
        };
        Failure {
            reason,
            message: self.message.clone(),
            recoverable: self.is_retryable(),
            phase: Some(phase),
            provider: self.provider.clone(),
            provider_status: self.status,
            provider_code: self.code.clone(),
            provider_request_id: self.request_id.clone(),
            retry_after: self.retry_after,
            categories: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_answers_unless_the_request_is_at_fault() {
        let table = [
            (Kind::Auth, 401, "", true),
            (Kind::RateLimited, 429, "", true),
            (Kind::Timeout, 0, "", true),
            (Kind::Overloaded, 529, "", true),
            (Kind::Broken, 0, "", true),
            (Kind::TooLong, 413, "", false),
            (Kind::BadRequest, 400, "", false),
            (Kind::BadRequest, 403, "content_policy", false),
            (Kind::BadRequest, 404, "", true),
            (Kind::BadRequest, 400, "model_not_found", true),
            (Kind::BadRequest, 0, "not_found_error", true),
        ];
        for (kind, status, code, expected) in table {
            let error = Error {
                status,
                code: code.to_owned(),
                ..Error::new(kind, "main", "It went wrong.")
            };
            assert_eq!(error.another_model_may_answer(), expected, "{error:?}");
        }
    }
}
