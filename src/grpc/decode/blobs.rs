//! Decodes the requests about blobs.

use super::{
    Findings, GetBlob, Path, StoredBlobs,
    hash::{idempotency, request_hash},
    media::{self, HASH_CHARS, is_hash},
    number,
};
use crate::{
    grpc::violations::{RequestError, Violation, Violations},
    model::{BlobId, command::PutBlob},
    pb::{
        self, FieldReason,
        limits::{Limited as _, blob_header, put_blob_request},
        put_blob_request::Data,
        rpc,
    },
    turn::session::upload::Piece,
};

/// Maximum size of an uploaded chunk, in bytes.
pub const MAX_CHUNK_BYTES: usize = put_blob_request::CHUNK;

/// The error for a range that starts or ends after the end of a blob of `bytes` bytes.
pub fn outside_of_blob(get: &GetBlob, bytes: u64) -> RequestError {
    let field = if get.offset > bytes { "offset_bytes" } else { "length_bytes" };
    refused(field, FieldReason::OutOfRange, format!("the range must be within the blob's {bytes} bytes"))
}

/// Decodes the first message of an upload. `request` is `None` if the client sent no message.
pub fn blob_header(request: Option<pb::PutBlobRequest>) -> Result<PutBlob, RequestError> {
    let Some(Data::Header(header)) = request.and_then(|request| request.data) else {
        return Err(refused("header", FieldReason::Required, "must be set in the first message"));
    };
    let mut found = Findings::new(rpc::PUT_BLOB, StoredBlobs::new());
    let at = Path::to("header");
    header.check(at, &mut found);
    let hash = request_hash(rpc::PUT_BLOB, &header);
    let pb::BlobHeader { media_type, size_bytes, sha256, request_id } = header;
    media::check_type(at.field("media_type"), &media_type, blob_header::MEDIA_TYPE, &mut found);
    let put = PutBlob {
        media_type,
        bytes: Some(number::bytes(size_bytes)).filter(|bytes| *bytes > 0),
        id: content_id(at.field("sha256"), sha256, &mut found),
        idempotency: idempotency(request_id, hash),
    };
    found.finish(Ok(put))
}

/// Decodes each further message of an upload.
pub fn blob_chunk(request: pb::PutBlobRequest) -> Result<Piece, RequestError> {
    match request.data {
        Some(Data::Chunk(bytes)) if bytes.len() > MAX_CHUNK_BYTES => {
            Err(refused("chunk", FieldReason::TooLarge, format!("must be at most {MAX_CHUNK_BYTES} bytes")))
        }
        Some(Data::Chunk(bytes)) => Ok(Piece::Bytes(bytes)),
        Some(Data::Header(_)) => Err(refused("header", FieldReason::Conflict, "must be set only in the first message")),
        None => Err(refused("chunk", FieldReason::Required, "must be set in each message after the first")),
    }
}

/// The violations for content that does not match its header. Arguments are the actual length and hash, where
/// the header's value is wrong.
pub fn content_mismatch(bytes: Option<u64>, sha256: Option<&BlobId>) -> Violations {
    let violation =
        |field: &str, description| Violation { field: field.to_owned(), reason: FieldReason::Conflict, description };
    let bytes = bytes.map(|bytes| {
        violation("header.size_bytes", format!("does not match the content: {bytes} bytes were received"))
    });
    let hash =
        sha256.map(|hash| violation("header.sha256", format!("does not match the content, whose SHA-256 is {hash}")));
    bytes.into_iter().chain(hash).collect()
}

/// Decodes the expected hash of the content. Returns `None` if the header has none.
fn content_id(at: Path<'_>, sha256: String, found: &mut Findings) -> Option<BlobId> {
    if !sha256.is_empty() && !is_hash(&sha256) {
        found.invalid(at, FieldReason::Invalid, format!("must be {HASH_CHARS} lower-case hexadecimal digits"));
    }
    (!sha256.is_empty()).then(|| BlobId::new(sha256))
}

fn refused(field: &str, reason: FieldReason, description: impl Into<String>) -> RequestError {
    let violation = Violation { field: field.to_owned(), reason, description: description.into() };
    RequestError::Invalid(Violations::from_iter([violation]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::decode::tests::{
        FieldReason::{Conflict, Invalid, OutOfRange, Required, TooLarge},
        check,
    };

    fn header(change: impl FnOnce(&mut pb::BlobHeader)) -> pb::PutBlobRequest {
        let mut header = pb::BlobHeader { media_type: "image/png".to_owned(), ..Default::default() };
        change(&mut header);
        pb::PutBlobRequest { data: Some(Data::Header(header)) }
    }

    fn read(change: impl FnOnce(&mut pb::BlobHeader)) -> Result<PutBlob, RequestError> {
        blob_header(Some(header(change)))
    }

    #[test]
    fn an_upload_header_is_decoded() {
        let hash = "0123456789abcdef".repeat(4);
        let put = read(|it| (it.size_bytes, it.sha256, it.request_id) = (5, hash.clone(), "r".to_owned())).unwrap();
        assert_eq!((put.media_type.as_str(), put.bytes, put.id), ("image/png", Some(5), Some(BlobId::new(hash))));
        assert_eq!(put.idempotency.request.unwrap().as_str(), "r");
        let plain = read(|_| ()).unwrap();
        assert_eq!((plain.bytes, plain.id, plain.idempotency.request), (None, None, None));
    }

    #[test]
    fn all_violations_of_an_upload_header_are_reported_together() {
        let everything = |it: &mut pb::BlobHeader| {
            it.media_type.clear();
            (it.size_bytes, it.sha256, it.request_id) = (-1, "A".repeat(64), "a\n".to_owned());
        };
        let wrong = [
            ("header.media_type", Required),
            ("header.size_bytes", OutOfRange),
            ("header.sha256", Invalid),
            ("header.request_id", Invalid),
        ];
        check(read(everything), &wrong);
        check(read(|it| it.sha256 = "0".repeat(63)), &[("header.sha256", Invalid)]);
    }

    #[test]
    fn upload_header_must_be_first_and_only_once() {
        let chunk = |bytes| pb::PutBlobRequest { data: Some(Data::Chunk(bytes)) };
        for first in [None, Some(pb::PutBlobRequest { data: None }), Some(chunk(vec![1]))] {
            check(blob_header(first), &[("header", Required)]);
        }
        check(blob_chunk(header(|_| ())), &[("header", Conflict)]);
        check(blob_chunk(pb::PutBlobRequest { data: None }), &[("chunk", Required)]);
        check(blob_chunk(chunk(vec![0; MAX_CHUNK_BYTES + 1])), &[("chunk", TooLarge)]);
        for bytes in [Vec::new(), vec![0; MAX_CHUNK_BYTES]] {
            assert_eq!(blob_chunk(chunk(bytes.clone())).unwrap(), Piece::Bytes(bytes));
        }
    }

    #[test]
    fn a_blob_range_violation_names_the_bound_that_is_outside() {
        let of = |offset, length| GetBlob { blob: BlobId::new("b"), offset, length };
        let field = |get: &GetBlob| match outside_of_blob(get, 10) {
            RequestError::Invalid(violations) => violations.listed[0].field.clone(),
            RequestError::NotImplemented { .. } => panic!("is implemented"),
        };
        assert_eq!(field(&of(11, 0)), "offset_bytes");
        assert_eq!(field(&of(9, 2)), "length_bytes");
    }
}
