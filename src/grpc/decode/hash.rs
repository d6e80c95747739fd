//! Hashes requests, to detect a reused idempotency key with a different request.

use std::fmt::Write;

use prost::Message;
use sha2::{Digest, Sha256};

use super::id;
use crate::model::command::Idempotency;

/// The SHA-256, in hex, of the RPC's name and the request. The caller must clear fields that may differ in a
/// repeated request.
pub fn request_hash(rpc: &str, request: &impl Message) -> String {
    let mut hash = Sha256::new();
    hash.update(rpc);
    hash.update([0]);
    hash.update(request.encode_to_vec());
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // writing to a String cannot fail
        hex
    })
}

/// Decodes `request_id` and combines it with the request's hash.
pub(super) fn idempotency(request_id: String, hash: String) -> Idempotency {
    Idempotency { request: id::request(request_id), hash }
}
