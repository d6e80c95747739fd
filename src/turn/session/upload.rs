//! Uploads: content arrives in pieces, is stored as it arrives, and becomes a blob when it is
//! complete and matches its header. It is not visible before that. The chunks of an aborted upload
//! are removed.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    model::{
        BlobId, TenantId,
        command::{Idempotency, PutBlob},
        derive::{self, ContentHash},
    },
    store::{
        blob::{Blob, CHUNK_BYTES},
        upload::{CompletedUpload, UploadOutcome},
    },
    turn::{
        Error,
        engine::{SessionCommands, supervised},
    },
};

/// Bytes that are buffered before a write: a whole number of chunks.
const BATCH_BYTES: usize = 16 * CHUNK_BYTES;
/// The age after which the chunks of an upload are abandoned. Longer than the longest upload and
/// than any clock skew.
const ABANDONED: Duration = Duration::from_hours(24);

/// One message of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// The end of the content. Without it the client has disconnected, and nothing is stored.
    End,
}

impl SessionCommands {
    /// Stores content that arrives in pieces. If `pieces` closes before [`Piece::End`], or on any
    /// error, no blob is created, and the chunks are removed now or by [`SessionCommands::sweep_uploads`].
    pub async fn put_blob(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PutBlob,
        pieces: mpsc::Receiver<Piece>,
    ) -> Result<Blob, Error> {
        supervised(&self.capacity, self, async move |sessions| sessions.receive(&tenant, &command, pieces).await).await
    }

    /// Removes the chunks of uploads whose replica died, in bounded batches.
    pub async fn sweep_uploads(&self) -> Result<(), Error> {
        let round = self.capacity.batches((), |()| async move {
            let (swept, more) = self.store.sweep_uploads(ABANDONED).await?;
            Ok((swept, more.then_some(())))
        });
        let swept = round.await?;
        if swept > 0 {
            tracing::info!(blob.chunks = swept, "removed chunks of abandoned uploads");
        }
        Ok(())
    }

    async fn receive(
        &self,
        tenant: &TenantId,
        command: &PutBlob,
        pieces: mpsc::Receiver<Piece>,
    ) -> Result<Blob, Error> {
        self.capacity.quotas.check_storage(tenant)?;
        let _place = self.uploads.try_acquire(tenant).ok_or(Error::TooManyUploads)?;
        let upload = derive::upload(Uuid::now_v7());
        let mut arriving = Arriving {
            sessions: self,
            tenant,
            upload: &upload,
            limit: self.prompts.rules.blobs.max_bytes,
            hash: ContentHash::default(),
            bytes: 0,
            written: 0,
            pending: Vec::new(),
            chunks: 0,
        };
        let kept = match arriving.read(command, pieces).await {
            Ok(()) => arriving.keep(command).await,
            Err(error) => Err(error),
        };
        if kept.is_err() {
            match self.store.discard_upload(tenant, &upload).await {
                Ok(()) => self.capacity.quotas.removed(tenant, arriving.written),
                Err(error) => {
                    tracing::warn!(upload.id = %upload, %error, "failed to remove the chunks of a failed upload; they will be removed later");
                }
            }
        }
        kept
    }
}

/// An upload in progress.
struct Arriving<'a> {
    sessions: &'a SessionCommands,
    tenant: &'a TenantId,
    upload: &'a BlobId,
    limit: u64,
    hash: ContentHash,
    bytes: u64,
    /// The number of `bytes` that are stored.
    written: u64,
    pending: Vec<u8>,
    chunks: u32,
}

impl Arriving<'_> {
    /// Reads all pieces, and writes all full batches. Fails as soon as the content exceeds a limit
    /// or the server drains.
    async fn read(&mut self, command: &PutBlob, mut pieces: mpsc::Receiver<Piece>) -> Result<(), Error> {
        if command.bytes.is_some_and(|bytes| bytes > self.limit) {
            return Err(Error::ContentTooLarge { limit: self.limit });
        }
        loop {
            let piece = tokio::select! {
                biased;
                () = self.sessions.capacity.draining.cancelled() => return Err(Error::Draining),
                piece = pieces.recv() => piece,
            };
            let bytes = match piece {
                Some(Piece::Bytes(bytes)) => bytes,
                Some(Piece::End) => return Ok(()),
                None => return Err(Error::UploadAbandoned),
            };
            self.bytes += bytes.len() as u64;
            if self.bytes > self.limit {
                return Err(Error::ContentTooLarge { limit: self.limit });
            }
            self.hash.update(&bytes);
            self.pending.extend(bytes);
            while self.pending.len() >= BATCH_BYTES {
                let rest = self.pending.split_off(BATCH_BYTES);
                let batch = std::mem::replace(&mut self.pending, rest);
                self.write(&batch).await?;
            }
        }
    }

    async fn write(&mut self, batch: &[u8]) -> Result<(), Error> {
        self.sessions.capacity.check_tenant(self.tenant)?;
        let quotas = &self.sessions.capacity.quotas;
        quotas.check_storage_for(self.tenant, batch.len() as u64)?;
        let chunks: Vec<&[u8]> = batch.chunks(CHUNK_BYTES).collect();
        self.sessions.store.write_upload(self.tenant, self.upload, self.chunks, &chunks).await?;
        self.written += batch.len() as u64;
        self.chunks = self.chunks.saturating_add(u32::try_from(chunks.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Verifies the content and turns it into a blob.
    async fn keep(&mut self, command: &PutBlob) -> Result<Blob, Error> {
        let id = std::mem::take(&mut self.hash).finish();
        let bytes = command.bytes.filter(|bytes| *bytes != self.bytes).map(|_| self.bytes);
        let sha256 = command.id.as_ref().filter(|said| **said != id).map(|_| id.clone());
        if bytes.is_some() || sha256.is_some() {
            return Err(Error::ContentMismatch { bytes, sha256 });
        }
        if !self.pending.is_empty() {
            let rest = std::mem::take(&mut self.pending);
            self.write(&rest).await?;
        }
        let arrived = CompletedUpload {
            upload: self.upload,
            chunks: self.chunks,
            id: &id,
            media_type: &command.media_type,
            bytes: self.bytes,
        };
        let idempotency = with_content(&command.idempotency, &id);
        match self.sessions.store.keep_upload(self.tenant, &arrived, &idempotency).await? {
            UploadOutcome::Blob(blob) => Ok(blob),
            UploadOutcome::Mismatch(request) => Err(Error::IdempotencyMismatch(request)),
        }
    }
}

/// The idempotency of an upload covers the header and the content.
fn with_content(idempotency: &Idempotency, id: &BlobId) -> Idempotency {
    Idempotency {
        request: idempotency.request.clone(),
        hash: derive::fingerprint([idempotency.hash.as_str(), id.as_str()]),
    }
}
