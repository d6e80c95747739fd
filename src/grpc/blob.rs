//! BlobService: uploads and downloads of content too large for messages, in chunks of bounded size.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    body_end::BodyEnd,
    caller::caller,
    decode::{self, GetBlob},
    handler,
    status::{idempotency_mismatch, upload_interrupted, upload_too_slow},
};
use crate::{
    codec::field::{Field as _, messages},
    config::BlobsConfig,
    model::{Principal, TenantId},
    pb::{self, blob_service_server::BlobService, get_blob_response::Data},
    store::{Reach, blob::Blob},
    turn::{Engine, Error, session::upload::Piece},
};

/// Chunks that may be buffered for a reader.
const BUFFER: usize = 4;

/// BlobService on top of an engine.
#[derive(Debug, Clone)]
pub struct Blobs {
    engine: Arc<Engine>,
}

impl Blobs {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

type Pieces = mpsc::Sender<Result<pb::GetBlobResponse, Status>>;

#[tonic::async_trait]
impl BlobService for Blobs {
    type GetBlobStream = ReceiverStream<Result<pb::GetBlobResponse, Status>>;

    async fn put_blob(
        &self,
        request: Request<Streaming<pb::PutBlobRequest>>,
    ) -> Result<Response<pb::PutBlobResponse>, Status> {
        let tenant = caller(&request)?.tenant;
        let ended = request.extensions().get::<BodyEnd>().cloned().unwrap_or_default();
        let mut messages = request.into_inner();
        let BlobsConfig { upload_idle_timeout, upload_timeout, .. } = self.engine.prompts.rules.blobs;
        let command = decode::blob_header(with_timeout(upload_idle_timeout, messages.message()).await??)?;
        let (pieces, arriving) = mpsc::channel(1);
        let fed = async {
            with_timeout(upload_timeout, forward_chunks(messages, &ended, pieces, upload_idle_timeout)).await?
        };
        let (fed, stored) = tokio::join!(fed, self.engine.sessions.put_blob(tenant, command, arriving));
        fed?;
        let blob = match stored {
            Err(Error::IdempotencyMismatch(key)) => {
                return Err(idempotency_mismatch(&key, "header.request_id"));
            }
            stored => stored?,
        };
        Ok(Response::new(pb::PutBlobResponse { blob: blob.to_field() }))
    }

    async fn get_blob(&self, request: Request<pb::GetBlobRequest>) -> Result<Response<Self::GetBlobStream>, Status> {
        let (Principal { tenant, .. }, wanted) = handler::accept(&self.engine, request).await?;
        let found = self.engine.store().blob(&tenant, &wanted.blob).await?;
        let blob = found.ok_or_else(|| Error::BlobNotFound(wanted.blob.clone()))?;
        let end = wanted.within(blob.bytes)?;
        let (pieces, stream) = mpsc::channel(BUFFER);
        let engine = Arc::clone(&self.engine);
        tokio::spawn(Reach::in_current_scope(async move {
            if let Err(status) = send(&engine, &tenant, &blob, wanted.offset..end, &pieces).await {
                let _ = pieces.send(Err(status)).await;
            }
        }));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Forwards chunks from the client until the upload ends. Returns early if the receiver is gone, which then
/// has the reason. On an error, or if dropped early, it sends no [`Piece::End`], so the receiver stores
/// nothing.
async fn forward_chunks(
    mut messages: Streaming<pb::PutBlobRequest>,
    ended: &BodyEnd,
    pieces: mpsc::Sender<Piece>,
    upload_idle_timeout: Duration,
) -> Result<(), Status> {
    loop {
        let message = tokio::select! {
            biased;
            () = pieces.closed() => return Ok(()),
            message = with_timeout(upload_idle_timeout, messages.message()) => message??,
        };
        let (piece, is_last) = match message {
            Some(message) => (decode::blob_chunk(message)?, false),
            None if ended.is_complete() => (Piece::End, true),
            None => return Err(upload_interrupted()),
        };
        if pieces.send(piece).await.is_err() || is_last {
            return Ok(());
        }
    }
}

/// Awaits `work`. Returns an error if it takes longer than `limit`.
async fn with_timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Status> {
    tokio::time::timeout(limit, work).await.map_err(|_| upload_too_slow())
}

/// Sends the description, then the bytes of the range, one stored chunk at a time. Ends early if the reader
/// disconnects.
async fn send(
    engine: &Engine,
    tenant: &TenantId,
    blob: &Blob,
    range: std::ops::Range<u64>,
    pieces: &Pieces,
) -> Result<(), Status> {
    let mut next = Data::Blob(blob.to_field());
    let mut at = range.start;
    while pieces.send(Ok(pb::GetBlobResponse { data: Some(next) })).await.is_ok() && at < range.end {
        let mut piece = engine.store().blob_piece(tenant, &blob.id, at).await?;
        if piece.is_empty() {
            return Err(super::status::internal(&format!("blob {} has no byte {at}", blob.id)));
        }
        piece.truncate(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        at += piece.len() as u64;
        next = Data::Chunk(piece);
    }
    Ok(())
}

messages! {
    Blob = Blob { id = blob_id, media_type, bytes = size_bytes, created_at = create_time, }
}

impl GetBlob {
    /// The end of the range in a blob of `bytes` bytes. Returns an error if the range starts or ends outside
    /// the blob.
    fn within(&self, bytes: u64) -> Result<u64, super::violations::RequestError> {
        let end = if self.length == 0 { bytes } else { self.offset.saturating_add(self.length) };
        if self.offset <= bytes && end <= bytes { Ok(end) } else { Err(decode::outside_of_blob(self, bytes)) }
    }
}
