//! Content too large for messages: content-addressed bytes in chunks, per tenant.

use super::{Error, Store, pipeline::Query};
use crate::model::{BlobId, TenantId};

/// Bytes of one stored chunk.
const CHUNK_BYTES: usize = 256 * 1024;

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

    /// The whole content; none: no blob of this tenant has the id.
    pub async fn blob(&self, tenant: &TenantId, id: &BlobId) -> Result<Option<Vec<u8>>, Error> {
        const SQL: &str = "-- store::blob::blob
            select c.bytes from blobs b left join blob_chunks c on c.tenant_id = $1 and c.blob_id = $2
             where b.tenant_id = $1 and b.blob_id = $2 order by c.idx";
        let rows = self.database.read(SQL, &[&tenant.as_str(), &id.as_str()]).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut content = Vec::new();
        for row in &rows {
            content.extend_from_slice(super::row::get::<Option<&[u8]>>(row, "bytes")?.unwrap_or_default());
        }
        Ok(Some(content))
    }
}
