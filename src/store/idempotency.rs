//! Idempotency keys, with the result of the request for each key. Their retention is defined in `config/retention.rs`.

use tokio_postgres::Row;

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
};
use crate::model::{RequestId, SessionKey, command::Idempotency};

/// The stored request for an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// The hash of the request.
    pub hash: String,
    /// The result of the request, usually an id.
    pub result: String,
}

/// An idempotency key in a transaction: inserted unless it exists, then read back.
pub(super) struct Request<'a> {
    key: &'a Key,
    request: Option<&'a str>,
    hash: &'a str,
    result: &'a str,
}

impl<'a> Request<'a> {
    pub(super) fn new(key: &'a Key, request: Option<&'a str>, hash: &'a str, result: &'a str) -> Self {
        Self { key, request, hash, result }
    }

    /// Increments the session's version, so that changes decided before the request was stored are decided again.
    pub(super) fn increment_version(&self) -> Query<'_> {
        const SQL: &str = "-- store::idempotency::Request::raise
            update session_run r set version = r.version + 1 where r.tenant_id = $1 and r.session_id = $2";
        Query::new(SQL, vec![&self.key.tenant as Param<'_>, &self.key.session])
    }

    pub(super) fn insert(&self) -> Query<'_> {
        const SQL: &str = "-- store::idempotency::Request::insert
            insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
            select r.tenant_id, r.session_id, $3, $4, $5 from session_run r
             where r.tenant_id = $1 and r.session_id = $2 and $3::text is not null on conflict do nothing";
        Query::new(SQL, vec![&self.key.tenant as Param<'_>, &self.key.session, &self.request, &self.hash, &self.result])
    }

    pub(super) fn read(&self) -> Query<'_> {
        const SQL: &str = "-- store::idempotency::Request::read
            select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = $3";
        Query::new(SQL, vec![&self.key.tenant as Param<'_>, &self.key.session, &self.request])
    }
}

impl Store {
    /// Reads the stored request for an idempotency key.
    pub async fn stored_request(&self, key: &SessionKey, request: &RequestId) -> Result<Option<StoredRequest>, Error> {
        const SQL: &str = "-- store::idempotency::remembered
            select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = $3";
        let key = Key::from(key);
        let rows = self.database.read(SQL, &[&key.tenant, &key.session, &request.as_str()]).await?;
        rows.first().map(stored_request).transpose()
    }

    /// Stores a request that changed nothing. Returns the first request with its key, which may be a concurrent one.
    pub(super) async fn remember_request(
        &self,
        key: &SessionKey,
        Idempotency { request, hash }: &Idempotency,
    ) -> Result<Option<StoredRequest>, Error> {
        let Some(request) = request else {
            return Ok(None);
        };
        let key = Key::from(key);
        let request = Request::new(&key, Some(request.as_str()), hash, "");
        let queries = [request.increment_version(), request.insert(), request.read()];
        let answers = self.database.transact(&queries).await?;
        let known = answers.last().and_then(|rows| rows.first());
        known.map(stored_request).transpose()
    }
}

pub(super) fn stored_request(row: &Row) -> Result<StoredRequest, Error> {
    Ok(StoredRequest { hash: get(row, "req_hash")?, result: get(row, "result")? })
}
