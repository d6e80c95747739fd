//! The requests for blobs.

use super::{Findings, Path, id, number};
use crate::{
    grpc::violations::{Refused, Violation, Violations},
    model::BlobId,
    pb::{self, FieldReason},
};

/// Name of the RPC.
pub const GET_BLOB: &str = "contextd.v1.BlobService/GetBlob";

/// Which content to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetBlob {
    /// The blob.
    pub blob: BlobId,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0: to the end.
    pub length: u64,
}

/// Reads a GetBlobRequest.
pub fn get_blob(request: pb::GetBlobRequest) -> Result<GetBlob, Refused> {
    let mut found = Findings::of(GET_BLOB);
    let pb::GetBlobRequest { blob_id, offset_bytes, length_bytes } = request;
    let get = GetBlob {
        blob: id::blob(Path::to("blob_id"), blob_id, &mut found),
        offset: bytes(Path::to("offset_bytes"), offset_bytes, &mut found),
        length: bytes(Path::to("length_bytes"), length_bytes, &mut found),
    };
    found.finish(get)
}

/// A range that begins or ends outside of a blob of that length.
pub fn outside_of_blob(bytes: u64) -> Refused {
    let violation = |field: &str| Violation {
        field: field.to_owned(),
        reason: FieldReason::OutOfRange,
        description: format!("the range must lie within the blob's {bytes} bytes"),
    };
    Refused::Invalid(Violations::from_iter([violation("offset_bytes"), violation("length_bytes")]))
}

fn bytes(at: Path<'_>, number: i64, found: &mut Findings) -> u64 {
    number::not_negative(at, number, found);
    u64::try_from(number).unwrap_or_default()
}
