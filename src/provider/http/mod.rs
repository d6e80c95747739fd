//! What every model service over HTTP shares: the client, the stream of events in its answers, and
//! what its refusals mean.
//!
//! A dialect encodes a prompt as a body and implements [`Decoder`]; [`Client::stream`] does the
//! rest. Keys are in headers that never print themselves, and whatever a service says is searched
//! for them before anybody reads it.

pub mod classify;
pub mod client;
pub mod lenient;
mod overflow;
pub mod report;
pub mod said;
pub mod sse;
pub mod stream;
pub mod wait;

pub use client::{Client, Settings, Unusable};
pub use said::Said;
pub use stream::{Call, Decoder};

use super::error::Kind;
use std::time::Duration;

/// Whether a host is one of a domain.
pub(in crate::provider) fn is_in_domain(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

/// What went wrong, before it is said with whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: Kind,
    /// One sentence for people.
    pub message: String,
    /// The service's own code; empty when there was none.
    pub code: String,
    /// How long the service asked to wait.
    pub retry_after: Option<Duration>,
    /// What is known about repeating the call, beyond the kind.
    pub should_retry: Option<bool>,
}

impl Fault {
    /// A fault that the service did not report.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: String::new(),
            retry_after: None,
            should_retry: None,
        }
    }

    /// An answer that cannot be used.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(Kind::Broken, message)
    }

    /// An event whose JSON is wrong: says where, without quoting it.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "it is cut off",
            serde_json::error::Category::Data => "it has a field of an unexpected type",
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => {
                "it is not JSON"
            }
        };
        Self::broken(format!(
            "an event of the stream cannot be read: {what}, at byte {}",
            error.column()
        ))
    }
}
