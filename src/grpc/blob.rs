//! BlobService: content too large for messages. Not implemented yet: every call says so.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::status::not_implemented_rpc;
use crate::pb::{self, blob_service_server::BlobService};

/// BlobService as far as it is built: not at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blobs;

#[tonic::async_trait]
impl BlobService for Blobs {
    type GetBlobStream = ReceiverStream<Result<pb::GetBlobResponse, Status>>;

    async fn put_blob(
        &self,
        _: Request<Streaming<pb::PutBlobRequest>>,
    ) -> Result<Response<pb::PutBlobResponse>, Status> {
        Err(not_implemented_rpc("contextd.v1.BlobService/PutBlob"))
    }

    async fn get_blob(&self, _: Request<pb::GetBlobRequest>) -> Result<Response<Self::GetBlobStream>, Status> {
        Err(not_implemented_rpc("contextd.v1.BlobService/GetBlob"))
    }
}
