//! What went wrong in a model call or a turn, in words that are safe to show.

use std::time::Duration;

use super::occupancy::Share;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The provider refused the server's credentials.
    ProviderAuth,
    /// Rate limited, and still so after all retries.
    ProviderRateLimited,
    /// No answer in time, or the stream stalled.
    ProviderTimeout,
    /// Overloaded, or a server error.
    ProviderOverloaded,
    /// The provider refused the request.
    ProviderBadRequest,
    /// Not reachable, broke off, or unreadable.
    ProviderBroken,
    /// The prompt does not fit.
    ContextOverflow,
    /// Replica after replica stopped while working on the turn.
    Poisoned,
    /// A defect of the server.
    Internal,
    /// The turn's model is no longer configured.
    ModelNotFound,
    /// The turn's policy is no longer configured.
    PolicyNotFound,
}

/// Where in a model call something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailurePhase {
    /// Before the first byte of the answer.
    Generate,
    /// While the answer was streaming.
    Stream,
}

/// What went wrong; free of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub reason: FailureReason,
    /// One sentence for people.
    pub message: String,
    /// Whether the same request may succeed later.
    pub recoverable: bool,
    /// Where in the model call. `None` if no model was involved.
    pub phase: Option<FailurePhase>,
    /// Configured name of the provider; empty when none was involved.
    pub provider: String,
    /// HTTP status of the provider's answer; 0 when there was none.
    pub provider_status: u16,
    /// The provider's own error code; empty when there was none.
    pub provider_code: String,
    /// The provider's id of the request; empty when unknown.
    pub provider_request_id: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
    /// A prompt that does not fit: what fills the window, largest first.
    pub categories: Vec<Share>,
}

impl Failure {
    /// A failure in which no provider was involved.
    pub fn local(reason: FailureReason, message: impl Into<String>, recoverable: bool) -> Self {
        Self {
            reason,
            message: message.into(),
            recoverable,
            phase: None,
            provider: String::new(),
            provider_status: 0,
            provider_code: String::new(),
            provider_request_id: String::new(),
            retry_after: None,
            categories: Vec::new(),
        }
    }
}
