//! Rejections of calls by a layer, before a handler runs.

use http::Response;
use tonic::{Status, body::Body};

use super::status::Overloaded;

/// Why a call is rejected.
pub(super) enum Rejection {
    /// The server is at its capacity.
    Overloaded,
    Status(Status),
}

impl From<Status> for Rejection {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Rejection {
    /// The response that rejects the call.
    pub(super) fn into_response(self) -> Response<Body> {
        match self {
            Self::Overloaded => Overloaded::response(),
            Self::Status(status) => status.into_http(),
        }
    }
}
