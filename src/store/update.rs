//! Changes of a session's configuration: each makes a new revision, with events.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    idempotency::{Remembered, Request, remembered},
    lock::lock_run,
    named_parameters::{self, Named},
    pipeline::Param,
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

/// After the row lock. The first one answers.
pub(super) static UPDATE: LazyLock<Vec<Named>> = named![
    "sql/update/run.sql",
    "sql/rows/toolset.sql",
    "sql/rows/revision.sql",
    "sql/update/events.sql",
    "sql/update/request.sql",
    "sql/update/session_used.sql",
];

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
        let config = ConfigParams::new(&key.tenant, new);
        let key = Key::from(key);
        let encoded: Vec<_> = events.iter().map(codec::event::encode).collect();
        let kinds: Vec<&str> = encoded.iter().map(|event| event.kind).collect();
        let payloads: Vec<&[u8]> = encoded
            .iter()
            .map(|event| event.payload.as_slice())
            .collect();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("revision", from),
            ("toolset", &config.toolset_id),
            ("config", &config.config),
            ("tools", &config.tools),
            ("tools_tokens", &config.tokens),
            ("estimator", &new.estimator),
            ("kinds", &kinds),
            ("payloads", &payloads),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
            ("ttl", &config.ttl),
            ("labels", &config.labels),
            ("title", &config.title),
        ];
        let mut queries = vec![lock_run(&key)];
        queries.extend(named_parameters::queries(&UPDATE, &values, |name| {
            name != "store::update::update_request" || request.is_some()
        })?);
        match self.database.transact(&queries).await {
            Ok(answers) => answers
                .get(1)
                .and_then(|rows| rows.first())
                .map(updated)
                .transpose(),
            // The same request at the same time was faster.
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
