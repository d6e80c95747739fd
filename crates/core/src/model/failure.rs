//! Failures of model calls and turns, with messages that are safe to show to users.

use std::time::Duration;

use super::occupancy::CategoryTokens;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The provider rejected the server's credentials.
    ProviderAuth,
    /// Rate limited, still after all retries.
    ProviderRateLimited,
    /// No response before the deadline, or the stream stalled.
    ProviderTimeout,
    /// The provider is overloaded, or responded with a server error.
    ProviderOverloaded,
    /// The provider rejected the request.
    ProviderBadRequest,
    /// The provider was unreachable, closed the connection, or sent an unreadable response.
    ProviderBroken,
    /// The prompt does not fit.
    ContextOverflow,
    /// Several replicas in succession stopped while working on the turn.
    Poisoned,
    /// A bug in the server.
    Internal,
    /// The turn's model is no longer configured.
    ModelNotFound,
    /// The turn's policy is no longer configured.
    PolicyNotFound,
}

/// The phase of a model call in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailurePhase {
    /// Before the first byte of the response.
    Generate,
    /// While the response was streamed.
    Stream,
}

/// A failure, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: FailureReason,
    /// One sentence for users.
    pub message: String,
    /// Whether the same request may succeed later.
    pub recoverable: bool,
    /// `None` if no model was involved.
    pub phase: Option<FailurePhase>,
    /// Configured name of the provider; empty if none was involved.
    pub provider: String,
    /// HTTP status of the provider's response; 0 if there was none.
    pub provider_status: u16,
    /// The provider's own error code; empty if there was none.
    pub provider_code: String,
    /// The provider's id of the request; empty if unknown.
    pub provider_request_id: String,
    /// The delay that the provider requested before a retry.
    pub retry_after: Option<Duration>,
    /// If the prompt does not fit: what the window is used for, largest first.
    pub categories: Vec<CategoryTokens>,
}

impl Failure {
    /// A failure that involves no provider.
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
