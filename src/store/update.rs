//! Changes of a session's configuration: each makes a new revision, with events.

use tokio_postgres::Row;

use super::{
    Error, Store,
    idempotency::{Remembered, Request, remembered},
    lock::lock_run,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    session::{ConfigParams, NewConfig},
};
use crate::{
    codec,
    model::{Payload, RequestId, Seq, SessionKey, command::Idempotency},
};

/// A configuration that is to come in force.
#[derive(Debug, Clone)]
pub struct NewRevision<'a> {
    /// The configuration.
    pub new: &'a NewConfig<'a>,
    /// The revision that it was made from.
    pub from: i64,
    /// The events about it.
    pub events: &'a [Payload],
    /// Idempotency.
    pub idempotency: &'a Idempotency,
}

/// A revision that came in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// Which.
    pub revision: i64,
    /// The newest seq.
    pub last_seq: Seq,
}

pub(super) const UPDATE: &str = include_str!("sql/update.sql");

impl Store {
    /// Puts a new configuration in force. `None` means the session is gone, its configuration
    /// changed meanwhile, or the request is known.
    pub async fn update(
        &self,
        key: &SessionKey,
        revision: &NewRevision<'_>,
    ) -> Result<Option<Updated>, Error> {
        let NewRevision {
            new,
            from,
            events,
            idempotency,
        } = revision;
        let key = Key::from(key);
        let config = ConfigParams::from(*new);
        let encoded: Vec<_> = events.iter().map(codec::event::encode).collect();
        let kinds: Vec<&str> = encoded.iter().map(|event| event.kind).collect();
        let payloads: Vec<&[u8]> = encoded
            .iter()
            .map(|event| event.payload.as_slice())
            .collect();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let mut params: Vec<Param<'_>> = vec![&key.tenant, &key.session, from];
        params.extend([
            &config.toolset_id as Param<'_>,
            &config.config,
            &config.tools,
            &config.tokens,
            &new.estimator,
        ]);
        params.extend([
            &kinds as Param<'_>,
            &payloads,
            &request,
            &idempotency.hash,
            &config.ttl,
        ]);
        match self
            .database
            .transact(&[lock_run(&key), Query::new(UPDATE, params)])
            .await
        {
            Ok(answers) => answers
                .last()
                .and_then(|rows| rows.first())
                .map(updated)
                .transpose(),
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers a request that changed nothing, and reads back what its key led to first.
    pub async fn remember(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
        result: &str,
    ) -> Result<Option<Remembered>, Error> {
        let key = Key::from(key);
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let known = Request::new(&key, request, &idempotency.hash, result);
        let answers = self
            .database
            .transact(&[known.insert(), known.read()])
            .await?;
        answers
            .last()
            .and_then(|rows| rows.first())
            .map(remembered)
            .transpose()
    }
}

fn updated(row: &Row) -> Result<Updated, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Updated {
        revision: get(row, "revision")?,
        last_seq: Seq(next_seq - 1),
    })
}
