//! Idempotency keys, with the result of the request for each key. Their retention is defined in `config/retention.rs`.

use tokio_postgres::Row;

use super::{Error, Store, key::Key, pipeline::Query, row::get};
use crate::model::{RequestId, SessionKey, command::Idempotency};

/// Reads the stored request for an idempotency key.
pub(super) const READ: &str = "-- store::idempotency::Request::read
    select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = $3";

/// The stored request for an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// The hash of the request.
    pub hash: String,
    /// The result of the request, usually an id.
    pub result: String,
}

impl Key<'_> {
    /// Increments the session's version, so that changes decided before something was stored are decided again.
    pub(super) fn increment_version(&self) -> Query<'_> {
        const SQL: &str = "-- store::idempotency::Request::raise
            update session_run r set version = r.version + 1 where r.tenant_id = $1 and r.session_id = $2";
        self.query(SQL, &[])
    }
}

impl Store {
    /// Reads the stored request for an idempotency key.
    pub async fn stored_request(&self, key: &SessionKey, request: &RequestId) -> Result<Option<StoredRequest>, Error> {
        let rows = self.database.read_in(key, READ, &[&request.as_str()]).await?;
        rows.first().map(stored_request).transpose()
    }

    /// Stores a request that changed nothing, with its result. Returns the first request with its key, which may be a
    /// concurrent one.
    pub async fn store_request_result(
        &self,
        key: &SessionKey,
        Idempotency { request, hash }: &Idempotency,
        result: &str,
    ) -> Result<Option<StoredRequest>, Error> {
        const INSERT: &str = "-- store::idempotency::Request::insert
            insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
            select r.tenant_id, r.session_id, $3, $4, $5 from session_run r
             where r.tenant_id = $1 and r.session_id = $2 on conflict do nothing";
        let Some(request) = request.as_ref().map(RequestId::as_str) else {
            return Ok(None);
        };
        let key = Key::from(key);
        let insert = key.query(INSERT, &[&request, hash, &result]);
        let queries = [key.increment_version(), insert, key.query(READ, &[&request])];
        let answers = self.database.transact(&queries).await?;
        let known = answers.last().and_then(|rows| rows.first());
        known.map(stored_request).transpose()
    }
}

/// Decodes a stored request.
pub(super) fn stored_request(row: &Row) -> Result<StoredRequest, Error> {
    Ok(StoredRequest { hash: get(row, "req_hash")?, result: get(row, "result")? })
}

/// Decodes the stored request that a session was joined with, if there is one.
pub(super) fn joined_request(row: &Row) -> Result<Option<StoredRequest>, Error> {
    let hash: Option<String> = get(row, "req_hash")?;
    Ok(hash.zip(get(row, "result")?).map(|(hash, result)| StoredRequest { hash, result }))
}
