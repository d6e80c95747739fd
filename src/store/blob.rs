//! Content too large for messages: content-addressed bytes in chunks, per tenant.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;

use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store,
    named_parameters::{self, Named},
    pipeline::{Param, Query},
    row::get,
};
use crate::model::{BlobId, TenantId};

/// Bytes of one stored chunk; all but the last of a blob have so many.
pub const CHUNK_BYTES: usize = 64 * 1024;

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

/// The beginning of content, and how long all of it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// Under which id.
    pub id: BlobId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its first stored chunk; empty content has none.
    pub beginning: Vec<u8>,
}

/// How far a walk over all blobs has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Walk {
    tenant: String,
    blob: String,
}

/// What a piece of the walk came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// How many blobs were taken away.
    pub swept: u64,
    /// Where it goes on.
    pub next: Walk,
}

/// Blobs that one round of the sweep looks at.
const ROUND: i64 = 100;

/// So long after it was touched content that nothing refers to stays: a day, and the hour for which
/// a look does not touch it again.
const UNUSED: Duration = Duration::from_hours(26);

pub(super) const BLOB: &str = "-- store::blob::blob
    select media_type, size_bytes, created_at from blobs where tenant_id = $1 and blob_id = $2";

pub(super) const BEGINNINGS: &str = "-- store::blob::beginnings
    with touched as (
      update blobs b set touched_at = now()
        from (select t.blob_id from blobs t where t.tenant_id = $1 and t.blob_id = any($2::text[])
                 and t.touched_at < now() - interval '1 hour' order by t.blob_id for no key update) t
       where b.tenant_id = $1 and b.blob_id = any($2::text[]) and b.blob_id = t.blob_id)
    select b.blob_id, b.size_bytes, coalesce(c.bytes, '') as bytes
      from blobs b
      left join lateral (select * from blob_chunks c where c.tenant_id = $1 and c.blob_id = b.blob_id and c.idx = 0 offset 0) c on true
     where b.tenant_id = $1 and b.blob_id = any($2::text[])";

static PUT: LazyLock<Vec<Named>> = named!["sql/blobs/put.sql", "sql/blobs/put_chunks.sql"];
static SWEEP: LazyLock<Named> = named_alone!("sql/sweep_blobs.sql");

impl Store {
    /// Stores content under its id, or notes that it is needed again. In a transaction of its own,
    /// before anything refers to it: what was touched within a day is not swept.
    pub async fn put_blob(
        &self,
        tenant: &TenantId,
        id: &BlobId,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
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
        let queries = named_parameters::queries(&PUT, &values, |_| true)?;
        let answers = self.database.transact(&queries).await?;
        if answers.first().is_none_or(Vec::is_empty) {
            self.check_tenant(tenant).await?;
        }
        Ok(())
    }

    /// Stores content under its id unless it is there and safe from the sweep for a day. For
    /// content that is read again and again: a repeated call writes nothing.
    pub async fn keep_blob(
        &self,
        tenant: &TenantId,
        id: &BlobId,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        const SQL: &str = "-- store::blob::keep_blob
            select 1 from blobs where tenant_id = $1 and blob_id = $2 and touched_at > now() - interval '1 hour'";
        if self
            .database
            .read(SQL, &[&tenant.as_str(), &id.as_str()])
            .await?
            .is_empty()
        {
            self.put_blob(tenant, id, media_type, bytes).await?;
        }
        Ok(())
    }

    /// What is known of a blob. `None` means no blob of this tenant has the id.
    pub async fn blob(&self, tenant: &TenantId, id: &BlobId) -> Result<Option<Blob>, Error> {
        let rows = self
            .database
            .read(BLOB, &[&tenant.as_str(), &id.as_str()])
            .await?;
        rows.first().map(|row| blob(id, row)).transpose()
    }

    /// The beginnings of these blobs, as far as they exist. A message is about to refer to them:
    /// they are not swept meanwhile.
    pub async fn beginnings(
        &self,
        tenant: &TenantId,
        ids: &[BlobId],
    ) -> Result<Vec<Beginning>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<&str> = ids.iter().map(BlobId::as_str).collect();
        let rows = self
            .database
            .write(&Query::new(
                BEGINNINGS,
                vec![&tenant.as_str() as Param<'_>, &ids],
            ))
            .await?;
        let beginning = |row: &Row| {
            let bytes: i64 = get(row, "size_bytes")?;
            Ok(Beginning {
                id: BlobId::new(get::<String>(row, "blob_id")?),
                bytes: u64::try_from(bytes).unwrap_or_default(),
                beginning: get(row, "bytes")?,
            })
        };
        rows.iter().map(beginning).collect()
    }

    /// Looks at the next blobs of all tenants and takes away those that nothing refers to. `None`
    /// means the walk is at its end.
    pub async fn sweep_blobs(&self, walk: &Walk) -> Result<Option<Swept>, Error> {
        let unused = UNUSED.as_secs_f64();
        let sweep = SWEEP.query(&[
            ("tenant", &walk.tenant as Param<'_>),
            ("blob", &walk.blob),
            ("age", &unused),
            ("most", &ROUND),
        ])?;
        let rows = self.database.write(&sweep).await?;
        let swept = |row: &Row| {
            let swept: i64 = get(row, "swept")?;
            let next = Walk {
                tenant: get(row, "tenant_id")?,
                blob: get(row, "blob_id")?,
            };
            Ok(Swept {
                swept: u64::try_from(swept).unwrap_or_default(),
                next,
            })
        };
        rows.first().map(swept).transpose()
    }

    /// Content from `offset` on: what is left of the stored chunk that holds it, empty at the end.
    /// Reading on from there gives the whole content, a bounded piece at a time.
    pub async fn blob_piece(
        &self,
        tenant: &TenantId,
        id: &BlobId,
        offset: u64,
    ) -> Result<Vec<u8>, Error> {
        const SQL: &str = "-- store::blob::blob_piece
            select bytes from blob_chunks where tenant_id = $1 and blob_id = $2 and idx = $3";
        let chunk = CHUNK_BYTES as u64;
        let index = i32::try_from(offset / chunk).unwrap_or(i32::MAX);
        let rows = self
            .database
            .read(SQL, &[&tenant.as_str(), &id.as_str(), &index])
            .await?;
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
