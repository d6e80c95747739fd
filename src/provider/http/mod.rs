//! The parts that all model services over HTTP share: the client, the event stream of responses,
//! and the classification of errors.
//!
//! A dialect encodes a prompt as a request body and implements [`Decoder`]; [`Client::stream`] does
//! the rest. Keys are stored in header types that never print their values, and they are redacted
//! from everything that a service returns before it is passed on.

mod chunks;
pub mod classify;
pub mod client;
pub mod lenient;
mod overflow;
pub mod report;
pub mod reported_error;
pub mod retry_after;
pub mod sse;
pub mod stream;

pub use chunks::Chunks;
pub use client::{Client, Settings, SetupError};
pub use reported_error::ReportedError;
pub(super) use stream::retried;
pub use stream::{Call, Decoder};

use super::error::Kind;
use std::time::Duration;

/// Whether a host is the domain itself or one of its subdomains.
pub(crate) fn is_in_domain(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

/// An error before the provider name is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// One human-readable sentence.
    pub message: String,
    /// The service's error code. Empty if there was none.
    pub code: String,
    /// How long to wait before a retry, if the service specified it.
    pub retry_after: Option<Duration>,
    /// Whether a retry is useful, if known; overrides the default of the kind.
    pub should_retry: Option<bool>,
}

/// The result of decoding a part of a response.
pub type Decoded = Result<(), Fault>;

impl Fault {
    /// A fault that the service did not report.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: String::new(), retry_after: None, should_retry: None }
    }

    /// A response that cannot be used.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(Kind::Broken, message)
    }

    /// A response that exceeds a limit. It is not retried, because it would exceed the limit again.
    pub fn oversized(message: impl Into<String>) -> Self {
        Self { should_retry: Some(false), ..Self::broken(message) }
    }

    /// An event with invalid JSON. The message describes the problem without quoting the content.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "it is cut off",
            serde_json::error::Category::Data => "it has a field of an unexpected type",
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => "it is not JSON",
        };
        Self::broken(format!("an event of the stream cannot be read: {what}, at byte {}", error.column()))
    }
}
