//! Why a call is refused by a layer before any handler.

use http::Response;
use tonic::{Status, body::Body};

use super::status::Overloaded;

/// Why a call is refused.
pub(super) enum Refusal {
    /// The server has as much to do as it may.
    Overloaded,
    /// Another reason.
    Status(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Refusal {
    /// The answer.
    pub(super) fn answer(self) -> Response<Body> {
        match self {
            Self::Overloaded => Overloaded::answer(),
            Self::Status(status) => status.into_http(),
        }
    }
}
