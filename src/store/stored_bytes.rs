//! The number of bytes that a tenant has stored: measured in batches of sessions, plus the bytes written since.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;

use super::{
    Error, Store,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{get, tenant_id},
};
use crate::model::{SessionKey, TenantId};

/// Maximum number of sessions that one statement measures.
const PAGE: i64 = 256;

static CLAIM_MEASURING: LazyLock<Named> = named_alone!("sql/tenants/claim_measuring.sql");
/// Reads only lengths, which are stored in the rows, and no content.
static OF_SESSIONS: LazyLock<Named> = named_alone!("sql/tenants/session_bytes.sql");
static WRITTEN: LazyLock<Named> = named_alone!("sql/tenants/written.sql");

/// A measurement in progress.
#[derive(Debug)]
pub struct Measuring {
    /// The count of written bytes when it began. The measurement includes these bytes.
    written: i64,
    after: String,
    page: i64,
    /// Bytes found so far.
    pub bytes: i64,
}

impl Store {
    /// Claims the tenants in `tenants` that no replica measured within `every`; this replica must then measure them.
    /// `known_at` is when deletions were read.
    pub async fn claim_measuring(
        &self,
        known_at: Option<Timestamp>,
        tenants: &[&str],
        every: Duration,
    ) -> Result<Vec<TenantId>, Error> {
        let every = every.as_secs_f64();
        let claim = CLAIM_MEASURING.query(&[("tenants", &tenants), ("every", &every), ("known_at", &known_at)])?;
        let rows = self.reserved().write(&claim).await?;
        rows.iter().map(tenant_id).collect()
    }

    /// Begins to measure a tenant's storage with the data that belongs to no session: blobs, uploads in progress, and
    /// tool sets.
    pub async fn begin_measure(&self, tenant: &TenantId) -> Result<Measuring, Error> {
        const SQL: &str =
            "-- store::stored_bytes::begin_measure: an upload is under an id of its own until it is complete
            select u.written_bytes,
                   ((select coalesce(sum(size_bytes), 0) from blobs where tenant_id = $1)
                  + (select coalesce(sum(octet_length(bytes)), 0) from blob_chunks
                      where tenant_id = $1 and blob_id >= 'upload:' and blob_id < 'upload;')
                  + (select coalesce(sum(octet_length(tools)), 0) from toolsets where tenant_id = $1))::bigint as bytes
              from tenant_use u where u.tenant_id = $1";
        let rows = self.database.read(SQL, &[&tenant.as_str()]).await?;
        let row = rows.first();
        let row = row.ok_or_else(|| Error::Corrupt("the usage row of a tenant is missing".to_owned()))?;
        Ok(Measuring {
            written: get(row, "written_bytes")?,
            after: String::new(),
            page: PAGE,
            bytes: get(row, "bytes")?,
        })
    }

    /// Measures the next sessions. Returns false if there are no more. A statement that takes too long is repeated with
    /// fewer sessions.
    pub async fn measure_sessions(&self, tenant: &TenantId, measuring: &mut Measuring) -> Result<bool, Error> {
        const NEXT: &str = "-- store::stored_bytes::next_sessions: in order of their key
            select session_id from session_run where tenant_id = $1 and session_id > $2 order by session_id limit $3";
        let params: [Param<'_>; 3] = [&tenant.as_str(), &measuring.after, &measuring.page];
        let rows = self.database.read(NEXT, &params).await?;
        let sessions: Vec<String> = rows.iter().map(|row| get(row, "session_id")).collect::<Result<_, Error>>()?;
        let Some(last) = sessions.last() else {
            return Ok(false);
        };
        match self.bytes_of(tenant, &sessions).await {
            Ok(bytes) => {
                measuring.bytes = measuring.bytes.saturating_add(bytes);
                measuring.after.clone_from(last);
                Ok(true)
            }
            Err(Error::Unavailable(_)) if sessions.len() > 1 => {
                measuring.page = (sessions.len() as i64 / 2).max(1);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends a measurement. If it is not `complete`, its result is only a lower bound.
    pub async fn end_measure(&self, tenant: &TenantId, measuring: Measuring, complete: bool) -> Result<(), Error> {
        const COMPLETE: &str = "-- store::stored_bytes::end_measure: what was written meanwhile counts on
            update tenant_use set stored_bytes = $2, written_bytes = written_bytes - $3, measured_at = now() where tenant_id = $1";
        const AT_LEAST: &str = "-- store::stored_bytes::measured_at_least
            update tenant_use set stored_bytes = greatest(stored_bytes, $2) where tenant_id = $1";
        let tenant = tenant.as_str();
        let Measuring { written, bytes, .. } = measuring;
        let query = match complete {
            true => Query::new(COMPLETE, vec![&tenant as Param<'_>, &bytes, &written]),
            false => Query::new(AT_LEAST, vec![&tenant as Param<'_>, &bytes]),
        };
        self.database.write(&query).await.map(drop)
    }

    /// Reads the size of one session in bytes, which is an upper bound for the size of a fork of it.
    pub async fn session_bytes(&self, key: &SessionKey) -> Result<i64, Error> {
        let session = key.session.as_str().to_owned();
        self.bytes_of(&key.tenant, &[session]).await
    }

    /// Reports the bytes written by this replica since the last report. `known_at` is when deletions were read.
    pub async fn report_written(&self, known_at: Option<Timestamp>, written: &[(TenantId, i64)]) -> Result<(), Error> {
        let tenants: Vec<&str> = written.iter().map(|(tenant, _)| tenant.as_str()).collect();
        let bytes: Vec<i64> = written.iter().map(|(_, bytes)| *bytes).collect();
        let report = WRITTEN.query(&[("tenants", &tenants), ("bytes", &bytes), ("known_at", &known_at)])?;
        self.reserved().write(&report).await.map(drop)
    }

    /// The size of sessions of a tenant in bytes.
    async fn bytes_of(&self, tenant: &TenantId, sessions: &[String]) -> Result<i64, Error> {
        let rows =
            self.database.read_named(&OF_SESSIONS, &[("tenant", &tenant.as_str()), ("sessions", &sessions)]).await?;
        let row = rows.first();
        get(row.ok_or_else(|| Error::Corrupt("a sum returned no row".to_owned()))?, "bytes")
    }
}
