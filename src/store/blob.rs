//! Content too large for messages: content-addressed bytes in chunks, per tenant.

use jiff::Timestamp;

use tokio_postgres::Row;

use super::{Error, Store, pipeline::Query, row::get, upload::CHUNK_BYTES};
use crate::model::{BlobId, TenantId};

/// A stored piece of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its id.
    pub id: BlobId,
    /// Its MIME type.
    pub media_type: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was first stored.
    pub created_at: Timestamp,
}

pub(super) const BLOB: &str = "-- store::blob::blob
    select media_type, size_bytes, created_at from blobs where tenant_id = $1 and blob_id = $2";

impl Store {
    /// Stores content under its id, or notes that it is needed again. In a transaction of its own, before anything refers to it:
    /// what was touched within a day is not swept.
    pub async fn put_blob(&self, tenant: &TenantId, id: &BlobId, media_type: &str, bytes: &[u8]) -> Result<(), Error> {
        const BLOB: &str = "-- store::blob::put_blob
            insert into blobs (tenant_id, blob_id, media_type, size_bytes) values ($1, $2, $3, $4)
            on conflict (tenant_id, blob_id) do update set touched_at = now()";
        const CHUNKS: &str = "-- store::blob::put_blob (chunks)
            insert into blob_chunks (tenant_id, blob_id, idx, bytes)
            select $1, $2, u.idx - 1, u.bytes from unnest($3::bytea[]) with ordinality as u(bytes, idx) on conflict do nothing";
        let chunks: Vec<&[u8]> = bytes.chunks(CHUNK_BYTES).collect();
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let (tenant, id) = (tenant.as_str(), id.as_str());
        let queries = [
            Query::new(BLOB, vec![&tenant as _, &id as _, &media_type as _, &size as _]),
            Query::new(CHUNKS, vec![&tenant as _, &id as _, &chunks as _]),
        ];
        self.database.transact(&queries).await.map(drop)
    }

    /// What is known of a blob; none: no blob of this tenant has the id.
    pub async fn blob(&self, tenant: &TenantId, id: &BlobId) -> Result<Option<Blob>, Error> {
        let rows = self.database.read(BLOB, &[&tenant.as_str(), &id.as_str()]).await?;
        rows.first().map(|row| blob(id, row)).transpose()
    }

    /// Content from `offset` on: what is left of the stored chunk that holds it, empty at the end. Reading on from there gives
    /// the whole content, a bounded piece at a time.
    pub async fn blob_piece(&self, tenant: &TenantId, id: &BlobId, offset: u64) -> Result<Vec<u8>, Error> {
        const SQL: &str = "-- store::blob::blob_piece
            select bytes from blob_chunks where tenant_id = $1 and blob_id = $2 and idx = $3";
        let chunk = CHUNK_BYTES as u64;
        let index = i32::try_from(offset / chunk).unwrap_or(i32::MAX);
        let rows = self.database.read(SQL, &[&tenant.as_str(), &id.as_str(), &index]).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let bytes: &[u8] = get(row, "bytes")?;
        let skip = usize::try_from(offset % chunk).unwrap_or(usize::MAX);
        Ok(bytes.get(skip..).unwrap_or_default().to_vec())
    }
}

pub(super) fn blob(id: &BlobId, row: &Row) -> Result<Blob, Error> {
    let bytes: i64 = get(row, "size_bytes")?;
    Ok(Blob {
        id: id.clone(),
        media_type: get(row, "media_type")?,
        bytes: u64::try_from(bytes).unwrap_or_default(),
        created_at: get(row, "created_at")?,
    })
}
