//! Errors of model calls. Each kind requires a different reaction.

use std::time::Duration;

use serde::Deserialize;

use crate::model::{Failure, FailurePhase, FailureReason};

/// Why a model call failed. The message contains neither secrets nor prompt content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct Error {
    pub kind: Kind,
    /// Configured name of the provider.
    pub provider: String,
    /// One human-readable sentence.
    pub message: String,
    /// HTTP status of the response. 0 if there was no response.
    pub status: u16,
    /// The provider's error code. Empty if there was none.
    pub code: String,
    /// The provider's id of the request. Empty if unknown.
    pub request_id: String,
    /// How long to wait before a retry, if the provider specified it.
    pub retry_after: Option<Duration>,
    /// Whether a retry is useful, if known; overrides the default of the kind.
    pub should_retry: Option<bool>,
}

/// Error codes of services for a model that does not exist or no longer exists, regardless of the
/// status.
const GONE_CODES: &[&str] = &[
    "model_not_found",
    "model_not_exist",
    "model_decommissioned", // Groq
    "model_not_available",
    "not_found_error", // Anthropic
    "NOT_FOUND",       // Gemini
];

/// The kind of an error, which determines how it is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The credential was rejected.
    Auth,
    /// A limit on requests or tokens was exceeded.
    RateLimited,
    /// No response before the timeout, or a stalled stream.
    Timeout,
    /// The service is overloaded or reported a server error.
    Overloaded,
    /// The service rejected the request as invalid.
    BadRequest,
    /// The prompt is too long for the model.
    TooLong,
    /// The service was unreachable, the connection broke, or the response was unreadable.
    Broken,
}

impl Kind {
    /// The name of the kind in metrics and spans.
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
    /// Creates an error that does not stem from a response of the provider.
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

    /// Whether the same call may succeed later. A prompt that is too long never does, whatever
    /// `should_retry` says.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            Kind::RateLimited | Kind::Timeout | Kind::Overloaded | Kind::Broken => self.should_retry.unwrap_or(true),
            Kind::Auth | Kind::BadRequest => self.should_retry.unwrap_or(false),
            Kind::TooLong => false,
        }
    }

    /// Whether another model may succeed where this one failed, because the fault lies with the
    /// model, its service or the account rather than with the request. Services report a model that
    /// does not exist (any more) as not found, or by an error code.
    pub fn another_model_may_answer(&self) -> bool {
        match self.kind {
            Kind::Auth | Kind::RateLimited | Kind::Timeout | Kind::Overloaded | Kind::Broken => true,
            Kind::BadRequest => matches!(self.status, 404 | 410) || GONE_CODES.contains(&self.code.as_str()),
            Kind::TooLong => false,
        }
    }

    /// Whether the service rejected the request as invalid with a message that contains all words of
    /// `all` and one of `any`, which are in lower case.
    pub(super) fn rejects(&self, all: &[&str], any: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        let says = |words: &&str| message.contains(*words);
        self.kind == Kind::BadRequest && all.iter().all(says) && any.iter().any(says)
    }

    /// Converts to the failure that is reported to clients.
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
            let error = Error { status, code: code.to_owned(), ..Error::new(kind, "main", "It went wrong.") };
            assert_eq!(error.another_model_may_answer(), expected, "{error:?}");
        }
    }
}
