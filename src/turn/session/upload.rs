//! Uploads: content comes piece by piece, is stored as it comes, and becomes a blob when it is
//! complete and what it was said to be. Until then it is not visible; what is left of one that
//! broke off is taken away.

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
        upload::{Arrived, Kept},
    },
    turn::{Error, engine::Engine},
};

/// Bytes that are gathered before they are written: a whole number of chunks.
const BATCH_BYTES: usize = 16 * CHUNK_BYTES;
/// After this long what is left of an upload is abandoned; longer than any upload may take, and
/// than clocks may be apart.
const ABANDONED: Duration = Duration::from_hours(24);

/// What comes from a client that stores content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// There are no more. Without this the client has left, and nothing is stored.
    End,
}

impl Engine {
    /// Stores content that comes piece by piece, until its end. When `pieces` breaks off, and on
    /// every error, nothing is left.
    pub async fn put_blob(
        self: &Arc<Self>,
        tenant: TenantId,
        command: PutBlob,
        pieces: mpsc::Receiver<Piece>,
    ) -> Result<Blob, Error> {
        self.supervised(async move |engine| engine.receive(&tenant, &command, pieces).await)
            .await
    }

    /// Takes away what is left of uploads whose replica was lost, a bounded piece at a time.
    pub async fn sweep_uploads(&self) -> Result<(), Error> {
        let round = self.batches((), |()| async move {
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
        self.quotas.check_storage(tenant)?;
        let _place = self
            .uploads
            .try_enter(tenant)
            .ok_or(Error::TooManyUploads)?;
        let upload = derive::upload(Uuid::now_v7());
        let mut arriving = Arriving {
            engine: self,
            tenant,
            upload: &upload,
            limit: self.rules.uploads.max_bytes,
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
                Ok(()) => self.quotas.removed(tenant, arriving.written),
                Err(error) => {
                    tracing::warn!(upload.id = %upload, %error, "an upload's chunks will be removed later");
                }
            }
        }
        kept
    }
}

/// Content on its way in.
struct Arriving<'a> {
    engine: &'a Engine,
    tenant: &'a TenantId,
    upload: &'a BlobId,
    limit: u64,
    hash: ContentHash,
    bytes: u64,
    /// Of these, those that are stored.
    written: u64,
    pending: Vec<u8>,
    chunks: u32,
}

impl Arriving<'_> {
    /// Reads to the end, and writes all full batches. Ends early where the end cannot be good any
    /// more.
    async fn read(
        &mut self,
        command: &PutBlob,
        mut pieces: mpsc::Receiver<Piece>,
    ) -> Result<(), Error> {
        if command.bytes.is_some_and(|bytes| bytes > self.limit) {
            return Err(Error::ContentTooLarge { limit: self.limit });
        }
        loop {
            let piece = tokio::select! {
                biased;
                () = self.engine.draining.cancelled() => return Err(Error::Draining),
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
        self.engine.check_tenant(self.tenant)?;
        let quotas = &self.engine.quotas;
        quotas.check_storage_for(self.tenant, batch.len() as u64)?;
        let chunks: Vec<&[u8]> = batch.chunks(CHUNK_BYTES).collect();
        self.engine
            .store
            .write_upload(self.tenant, self.upload, self.chunks, &chunks)
            .await?;
        self.written += batch.len() as u64;
        self.chunks = self
            .chunks
            .saturating_add(u32::try_from(chunks.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Checks the whole and makes it a blob.
    async fn keep(&mut self, command: &PutBlob) -> Result<Blob, Error> {
        let id = std::mem::take(&mut self.hash).finish();
        let bytes = command
            .bytes
            .filter(|bytes| *bytes != self.bytes)
            .map(|_| self.bytes);
        let sha256 = command
            .id
            .as_ref()
            .filter(|said| **said != id)
            .map(|_| id.clone());
        if bytes.is_some() || sha256.is_some() {
            return Err(Error::ContentMismatch { bytes, sha256 });
        }
        if !self.pending.is_empty() {
            let rest = std::mem::take(&mut self.pending);
            self.write(&rest).await?;
        }
        let arrived = Arrived {
            upload: self.upload,
            chunks: self.chunks,
            id: &id,
            media_type: &command.media_type,
            bytes: self.bytes,
        };
        let idempotency = with_content(&command.idempotency, &id);
        match self
            .engine
            .store
            .keep_upload(self.tenant, &arrived, &idempotency)
            .await?
        {
            Kept::Blob(blob) => Ok(blob),
            Kept::Mismatch(request) => Err(Error::IdempotencyMismatch(request)),
        }
    }
}

/// The request is the header and the content.
fn with_content(idempotency: &Idempotency, id: &BlobId) -> Idempotency {
    Idempotency {
        request: idempotency.request.clone(),
        hash: derive::fingerprint([idempotency.hash.as_str(), id.as_str()]),
    }
}
