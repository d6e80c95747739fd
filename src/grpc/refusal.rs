//! Rejections of calls by a layer, before a handler runs.

use http::Response;
use tonic::{Status, body::Body};

use super::status::Overloaded;

/// Why a call is rejected.
pub(super) enum Refusal {
    /// The server is at its capacity.
    Overloaded,
    Status(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Refusal {
    /// The response that rejects the call.
    pub(super) fn answer(self) -> Response<Body> {
        match self {
            Self::Overloaded => Overloaded::answer(),
            Self::Status(status) => status.into_http(),
        }
    }
}
