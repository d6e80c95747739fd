//! What the decoding of all requests has in common.

use prost::Message;

use super::{
    findings::{Findings, StoredBlobs},
    hash::request_hash,
};
use crate::{
    codec::DecodeError,
    grpc::violations::RequestError,
    model::BlobId,
    pb::{
        Rpc,
        limits::{Limited, Path},
    },
};

/// A request that is decoded to a command.
pub trait Decode: Limited + Message + Rpc + Sized {
    /// What the request is decoded to.
    type Command;

    /// The blobs that the request references, which are looked up before it is decoded.
    fn blobs(&self) -> Vec<BlobId> {
        Vec::new()
    }

    /// Clears the fields that only the server sets.
    fn clear_server_fields(&mut self, _found: &mut Findings) {
        self.clear_output_only();
    }

    /// The hash by which a repeated request is recognised.
    fn hash(&mut self) -> String {
        request_hash(Self::NAME, self)
    }

    /// Reads the command, and reports what is wrong with the request. The limits of the fields are checked; an error is a
    /// value that such a check has reported, or that is unknown to this server.
    fn read(self, found: &mut Findings) -> Result<Self::Command, DecodeError>;
}

/// Decodes a request. `stored` are the blobs that it references.
pub fn decode<R: Decode>(mut request: R, stored: StoredBlobs) -> Result<R::Command, RequestError> {
    let mut found = Findings::new(R::NAME, stored);
    request.clear_server_fields(&mut found);
    request.check(Path::request(), &mut found);
    if R::HAS_REQUEST_ID {
        found.set_hash(request.hash());
    }
    let command = request.read(&mut found);
    found.finish(command)
}
