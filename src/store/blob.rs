//! Blobs: content too large for messages, stored per tenant as content-addressed bytes in chunks.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;

use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store,
    named_parameters::{self, Named},
    pipeline::{Param, Query},
    row::get,
    sweep::Walk,
};
use crate::model::{BlobId, TenantId};

/// Size of a stored chunk in bytes. Only the last chunk of a blob may be smaller.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// Metadata of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub id: BlobId,
    pub media_type: String,
    /// Length in bytes.
    pub bytes: u64,
    pub created_at: Timestamp,
}

/// The first chunk of a blob, and the blob's total length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstChunk {
    pub id: BlobId,
    /// Total length in bytes.
    pub bytes: u64,
    /// The first stored chunk; empty if the content is empty.
    pub chunk: Vec<u8>,
}

/// Number of blobs that one round of the sweep checks.
const ROUND: i64 = 100;

/// How long reads do not touch content again.
const TOUCH_INTERVAL: Duration = Duration::from_hours(1);
/// How long unreferenced content is kept after it was last touched: more than a day plus [`TOUCH_INTERVAL`].
const UNUSED: Duration = Duration::from_hours(26);

const BLOB: &str = "-- store::blob::blob
    select media_type, size_bytes, created_at from blobs where tenant_id = $1 and blob_id = $2";

const TOUCH: &str = "-- store::blob::touch
    update blobs b set touched_at = now()
      from (select t.blob_id from blobs t where t.tenant_id = $1 and t.blob_id = any($2::text[])
             order by t.blob_id for no key update) t
     where b.tenant_id = $1 and b.blob_id = any($2::text[]) and b.blob_id = t.blob_id returning b.blob_id";
pub(super) const BEGINNINGS: &str = "-- store::blob::beginnings
    select b.blob_id, b.size_bytes, coalesce(c.bytes, '') as bytes, b.touched_at < now() - make_interval(secs => $3) as stale
      from blobs b
      left join lateral (select * from blob_chunks c where c.tenant_id = $1 and c.blob_id = b.blob_id and c.idx = 0 offset 0) c on true
     where b.tenant_id = $1 and b.blob_id = any($2::text[])";

static PUT: LazyLock<Vec<Named>> = named!["sql/put_blob.sql"];
static SWEEP: LazyLock<Named> = named_alone!("sql/sweep/blobs.sql");
static REMOVE: LazyLock<Vec<Named>> = named!["sql/sweep/remove_blobs.sql"];

impl Store {
    /// Stores content under its id, or touches it if it exists. Runs in a separate transaction before anything refers
    /// to the blob: blobs that were touched within a day are not swept.
    pub async fn put_blob(&self, tenant: &TenantId, id: &BlobId, media_type: &str, bytes: &[u8]) -> Result<(), Error> {
        let chunks: Vec<&[u8]> = bytes.chunks(CHUNK_BYTES).collect();
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let tenant = tenant.as_str();
        let id = id.as_str();
        let known_at = AdmittedAt::current();
        let values = [
            ("tenant", &tenant as Param<'_>),
            ("blob", &id),
            ("media_type", &media_type),
            ("bytes", &size),
            ("chunks", &chunks),
            ("known_at", &known_at),
        ];
        let queries = named_parameters::queries(&PUT, &values)?;
        let answers = self.database.transact(&queries).await?;
        if answers.first().is_none_or(Vec::is_empty) {
            self.check_tenant(tenant).await?;
        }
        Ok(())
    }

    /// Stores content under its id, unless it exists and is safe from the sweep for a day. Suitable for content that is
    /// read repeatedly: a repeated call writes nothing.
    pub async fn keep_blob(&self, tenant: &TenantId, id: &BlobId, media_type: &str, bytes: &[u8]) -> Result<(), Error> {
        const SQL: &str = "-- store::blob::keep_blob
            select 1 from blobs where tenant_id = $1 and blob_id = $2 and touched_at > now() - make_interval(secs => $3)";
        let recently = TOUCH_INTERVAL.as_secs_f64();
        if self.database.read(SQL, &[&tenant.as_str(), &id.as_str(), &recently]).await?.is_empty() {
            self.put_blob(tenant, id, media_type, bytes).await?;
        }
        Ok(())
    }

    /// Reads the metadata of a blob. Returns `None` if the tenant has no blob with this id.
    pub async fn blob(&self, tenant: &TenantId, id: &BlobId) -> Result<Option<Blob>, Error> {
        let rows = self.database.read(BLOB, &[&tenant.as_str(), &id.as_str()]).await?;
        rows.first().map(|row| blob(id, row)).transpose()
    }

    /// Reads the first chunks of these blobs, of those that exist. Touches the blobs, so that they are not swept before
    /// a message refers to them.
    pub async fn first_chunks(&self, tenant: &TenantId, ids: &[BlobId]) -> Result<Vec<FirstChunk>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<&str> = ids.iter().map(BlobId::as_str).collect();
        let tenant = tenant.as_str();
        let rows = self.database.read(BEGINNINGS, &[&tenant, &ids, &TOUCH_INTERVAL.as_secs_f64()]).await?;
        let mut stale = Vec::new();
        for row in &rows {
            if get(row, "stale")? {
                stale.push(get::<&str>(row, "blob_id")?);
            }
        }
        // A blob that the sweep removes concurrently counts as missing.
        let mut kept = Vec::new();
        if !stale.is_empty() {
            let touch = Query::new(TOUCH, vec![&tenant as Param<'_>, &stale]);
            kept = self.database.write(&touch).await?;
        }
        let kept: Vec<&str> = kept.iter().map(|row| get(row, "blob_id")).collect::<Result<_, _>>()?;
        let mut beginnings = Vec::new();
        for row in &rows {
            let id: &str = get(row, "blob_id")?;
            let bytes: i64 = get(row, "size_bytes")?;
            if !get::<bool>(row, "stale")? || kept.contains(&id) {
                beginnings.push(FirstChunk {
                    id: BlobId::new(id),
                    bytes: u64::try_from(bytes).unwrap_or_default(),
                    chunk: get(row, "bytes")?,
                });
            }
        }
        Ok(beginnings)
    }

    /// Checks the next blobs of all tenants and removes those that nothing refers to. Returns their number and where the
    /// next round starts, or `None` at the end of the walk.
    pub async fn sweep_blobs(&self, walk: &Walk) -> Result<Option<(u64, Walk)>, Error> {
        let unused = UNUSED.as_secs_f64();
        let values = [("tenant", &walk.tenant as Param<'_>), ("blob", &walk.id), ("age", &unused), ("most", &ROUND)];
        let rows = self.database.read_named(&SWEEP, &values).await?;
        let (mut tenants, mut blobs) = (vec![], vec![]);
        for row in &rows {
            if get(row, "unused")? {
                tenants.push(get::<&str>(row, "tenant_id")?);
                blobs.push(get::<&str>(row, "blob_id")?);
            }
        }
        let mut swept = 0;
        if !tenants.is_empty() {
            let values = [("tenants", &tenants as Param<'_>), ("blobs", &blobs), ("age", &unused)];
            let remove = named_parameters::queries(&REMOVE, &values)?;
            let answers = self.database.transact(&remove).await?;
            swept = answers.first().map_or(0, Vec::len) as u64;
        }
        let next = |row: &Row| Ok((swept, Walk { tenant: get(row, "tenant_id")?, id: get(row, "blob_id")? }));
        rows.last().map(next).transpose()
    }

    /// Reads content from `offset` to the end of the stored chunk that contains it; empty at the end of the content.
    /// Repeated calls read the whole content in pieces of bounded size.
    pub async fn blob_piece(&self, tenant: &TenantId, id: &BlobId, offset: u64) -> Result<Vec<u8>, Error> {
        const SQL: &str = "-- store::blob::blob_piece
            select bytes from blob_chunks where tenant_id = $1 and blob_id = $2 and idx = $3";
        let chunk = CHUNK_BYTES as u64;
        let index = i32::try_from(offset / chunk).unwrap_or(i32::MAX);
        let rows = self.database.read(SQL, &[&tenant.as_str(), &id.as_str(), &index]).await?;
        let Some(row) = rows.first() else {
            return Ok(Vec::new());
        };
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
