//! The ids that requests contain, for logs.

use tonic::Streaming;

/// The ids in a request. `build/rpc.rs` generates the implementations from the names of fields.
pub trait RequestIds {
    /// The session id. Empty if there is none.
    fn session(&self) -> &str {
        ""
    }

    /// The turn id. Empty if there is none.
    fn turn(&self) -> &str {
        ""
    }

    /// The tenant that the request manages, empty for the caller's tenant. Returns `None` if it manages none.
    fn managed_tenant(&self) -> Option<&str> {
        None
    }

    /// The id of the API key that the request manages. Empty if there is none.
    fn managed_key(&self) -> &str {
        ""
    }
}

impl<T> RequestIds for Streaming<T> {}

include!(concat!(env!("OUT_DIR"), "/ids.rs"));
