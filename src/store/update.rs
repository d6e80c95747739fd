//! Changes of a session's configuration: each makes a new revision, told by events.

use tokio_postgres::Row;

use super::{
    Error, Store,
    lease::{Request, lock_run},
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    session::{ConfigParams, NewConfig, Remembered, Session, remembered, session},
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
    /// Prompts made under it are not those of before: their size has to be counted anew.
    pub other_prompt: bool,
    /// What is told of it.
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
pub(super) const SESSION_AT: &str = "-- store::update::session_at
    select s.session_id, s.created_at, a.updated_at, r.state, r.turn_id, r.next_seq, v.revision, r.ctx_tokens, v.config,
           t.tools, t.tokens as tools_tokens,
           (select count(*) from queue q where q.tenant_id = $1 and q.session_id = $2 and q.status = 0)::int as queued
      from sessions s
      join session_run r on r.tenant_id = $1 and r.session_id = $2 and r.state <> 3
      join session_activity a on a.tenant_id = $1 and a.session_id = $2
      join session_revisions v on v.tenant_id = $1 and v.session_id = $2 and v.revision = $3
      join toolsets t on t.tenant_id = $1 and t.toolset_id = v.toolset_id
     where s.tenant_id = $1 and s.session_id = $2";

impl Store {
    /// Puts a new configuration in force. None: the session is gone, its configuration changed meanwhile, or the request is known.
    pub async fn update(&self, key: &SessionKey, revision: &NewRevision<'_>) -> Result<Option<Updated>, Error> {
        let NewRevision { new, from, other_prompt, events, idempotency } = revision;
        let (key, config) = (Key::from(key), ConfigParams::from(*new));
        let encoded: Vec<_> = events.iter().map(codec::event::encode).collect();
        let kinds: Vec<&str> = encoded.iter().map(|event| event.kind).collect();
        let payloads: Vec<&[u8]> = encoded.iter().map(|event| event.payload.as_slice()).collect();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let mut params: Vec<Param<'_>> = vec![&key.tenant, &key.session, from];
        params.extend([&config.toolset_id as Param<'_>, &config.config, &config.tools, &config.tokens, &new.estimator]);
        params.extend([other_prompt as Param<'_>, &kinds, &payloads, &request, &idempotency.hash]);
        match self.database.transact(&[lock_run(&key), Query::new(UPDATE, params)]).await {
            Ok(answers) => answers.last().and_then(|rows| rows.first()).map(updated).transpose(),
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
        let (key, request) = (Key::from(key), idempotency.request.as_ref().map(RequestId::as_str));
        let known = Request::new(&key, request, &idempotency.hash, result);
        let answers = self.database.transact(&[known.insert(), known.read()]).await?;
        answers.last().and_then(|rows| rows.first()).map(remembered).transpose()
    }

    /// The session as it is, but with the configuration of one of its revisions; none: there is no such session.
    pub async fn session_at(&self, key: &SessionKey, revision: i64) -> Result<Option<Session>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(SESSION_AT, &[&key.tenant, &key.session, &revision]).await?;
        rows.first().map(session).transpose()
    }
}

fn updated(row: &Row) -> Result<Updated, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    Ok(Updated { revision: get(row, "revision")?, last_seq: Seq(next_seq - 1) })
}
