//! Hashes requests, to detect a reused idempotency key with a different request.

use prost::Message;

use crate::model::{RequestId, command::Idempotency, derive};

/// The SHA-256, in hex, of the RPC's name and the request. The caller must clear fields that may differ in a
/// repeated request.
pub fn request_hash(rpc: &str, request: &impl Message) -> String {
    let named = [rpc.as_bytes(), &[0], &request.encode_to_vec()].concat();
    derive::blob(&named).into_string()
}

/// Decodes `request_id` and combines it with the request's hash.
pub(super) fn idempotency(request_id: String, hash: String) -> Idempotency {
    Idempotency { request: Some(request_id).filter(|id| !id.is_empty()).map(RequestId::new), hash }
}
