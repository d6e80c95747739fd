//! Uploads: chunks are stored under the id of the upload as they arrive, and moved to the content's id when all have
//! arrived. Only then does the blob exist.

use std::{sync::LazyLock, time::Duration};

use super::{
    AdmittedAt, Error, Store,
    blob::{Blob, blob},
    idempotency::{StoredRequest, stored_request},
    named_parameters::{self, Named},
    pipeline::{Param, Query},
};
use crate::model::{BlobId, RequestId, TenantId, command::Idempotency};

/// Maximum number of chunks that one round of the sweep removes.
const ROUND: i64 = 4096;

/// Content that has arrived completely.
#[derive(Debug, Clone)]
pub struct CompletedUpload<'a> {
    /// The upload that has the chunks.
    pub upload: &'a BlobId,
    /// Number of chunks.
    pub chunks: u32,
    /// The id of the content.
    pub id: &'a BlobId,
    pub media_type: &'a str,
    /// Length in bytes.
    pub bytes: u64,
}

/// The outcome of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadOutcome {
    /// The blob, as it was first stored.
    Blob(Blob),
    /// The idempotency key was used with another request. Nothing is stored.
    Mismatch(RequestId),
}

static WRITE: LazyLock<Named> = named_alone!("sql/upload/write.sql");
static KEEP: LazyLock<Vec<Named>> = named!["sql/upload/keep.sql"];
static SWEEP: LazyLock<Named> = named_alone!("sql/upload/sweep.sql");

impl Store {
    /// Stores chunks of an upload, starting at index `first`.
    pub async fn write_upload(
        &self,
        tenant: &TenantId,
        upload: &BlobId,
        first: u32,
        chunks: &[&[u8]],
    ) -> Result<(), Error> {
        let first = i32::try_from(first).unwrap_or(i32::MAX);
        let tenant = tenant.as_str();
        let upload = upload.as_str();
        let known_at = AdmittedAt::current();
        let write = WRITE.query(&[
            ("tenant", &tenant as Param<'_>),
            ("upload", &upload),
            ("first", &first),
            ("chunks", &chunks),
            ("known_at", &known_at),
        ])?;
        if self.database.write(&write).await?.is_empty() {
            self.check_tenant(tenant).await?;
        }
        Ok(())
    }

    /// Turns an upload into a blob, or discards the upload if the blob already exists. If two uploads have the same
    /// content, the second waits for the first at the blob's row and then finds the chunks of the first.
    pub async fn keep_upload(
        &self,
        tenant: &TenantId,
        arrived: &CompletedUpload<'_>,
        idempotency: &Idempotency,
    ) -> Result<UploadOutcome, Error> {
        let CompletedUpload { upload, chunks, id, media_type, bytes } = arrived;
        let tenant = tenant.as_str();
        let size = i64::try_from(*bytes).unwrap_or(i64::MAX);
        let hash = &idempotency.hash;
        let values: [(&str, Param<'_>); 9] = [
            ("tenant", &tenant),
            ("blob", &id.as_str()),
            ("media_type", media_type),
            ("bytes", &size),
            ("upload", &upload.as_str()),
            ("chunks", &i64::from(*chunks)),
            ("request_id", &idempotency.request.as_ref().map(RequestId::as_str)),
            ("request_hash", hash),
            ("known_at", &AdmittedAt::current()),
        ];
        let queries = named_parameters::queries(&KEEP, &values)?;
        let answers = self.database.transact(&queries).await?;
        let [.., known, found] = answers.as_slice() else {
            return Err(Error::Corrupt("a transaction returned too few results".to_owned()));
        };
        let known: Option<StoredRequest> = known.first().map(stored_request).transpose()?;
        if let (Some(request), Some(known)) = (&idempotency.request, known)
            && known.hash != *hash
        {
            return Ok(UploadOutcome::Mismatch(request.clone()));
        }
        let found = found.first().map(|row| blob(id, row)).transpose()?;
        if found.is_none() {
            self.check_tenant(tenant).await?;
        }
        found
            .map(UploadOutcome::Blob)
            .ok_or_else(|| Error::Corrupt(format!("chunks of the upload {upload} are missing")))
    }

    /// Removes the chunks of an upload that was aborted.
    pub async fn discard_upload(&self, tenant: &TenantId, upload: &BlobId) -> Result<(), Error> {
        self.database.write(&Query::new(DISCARD, vec![&tenant.as_str() as Param<'_>, &upload.as_str()])).await.map(drop)
    }

    /// Removes the remaining chunks of uploads that began longer than `age` ago, of all tenants. Returns the number of
    /// removed chunks, and whether this reached the limit of one round. Tenants are found one after another, each by
    /// one index lookup.
    pub async fn sweep_uploads(&self, age: Duration) -> Result<(u64, bool), Error> {
        let age = age.as_secs_f64();
        let sweep = SWEEP.query(&[("age", &age as Param<'_>), ("most", &ROUND)])?;
        let swept = self.database.write(&sweep).await?.len() as u64;
        Ok((swept, swept >= ROUND.unsigned_abs()))
    }
}

const DISCARD: &str = "-- store::upload::discard_upload
    delete from blob_chunks where tenant_id = $1 and blob_id = $2";
