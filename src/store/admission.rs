//! Admission: an idle session, or one that is made with it, gets a turn, its lease and its first events in one statement.

use std::time::Duration;

use tokio_postgres::Row;

use super::{
    Error, Store,
    grant::{Grant, grant},
    idempotency::Remembered,
    lock::lock_run,
    pipeline::{Param, Query},
    row::{get, role},
    rows::{Key, Rows},
    session::{ConfigParams, NewConfig, SessionState},
};
use crate::{
    codec,
    model::{
        RequestId, Role, Seq, SessionKey, TurnId,
        command::{Idempotency, TurnRequest},
    },
};

/// A turn to be admitted.
#[derive(Debug, Clone)]
pub struct Admission<'a> {
    /// Its id.
    pub turn: &'a TurnId,
    /// Its first events and its input.
    pub rows: &'a Rows,
    /// How long it may take.
    pub timeout: Duration,
    /// The revision that its first step was made for.
    pub revision: i64,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// What it does differently from its session.
    pub request: &'a TurnRequest,
    /// Model reference.
    pub model: &'a str,
    /// It begins without input: the transcript must ask for an answer.
    pub continues: bool,
}

/// What stands in the way of an admission, or what became of the request before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where the session stands.
    pub state: SessionState,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The newest seq.
    pub last_seq: Seq,
    /// The configuration's revision.
    pub revision: i64,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

pub(super) const ADMIT: &str = statement!("sql/admit.sql", "sql/rows.sql", "sql/grown.sql", "sql/context_delta.sql";
    " select f.epoch, f.op, f.turn_id, f.next_seq from f");

pub(super) const ADMIT_NEW: &str = statement!("sql/admit_new.sql", "sql/rows.sql", "sql/grown.sql", "sql/new_context.sql";
    " select f.epoch, f.op, f.turn_id, f.next_seq from f");

/// Who spoke last. A summary stands for older words, wherever it is.
pub(super) const LAST_ROLE: &str = "-- store::admission::last_role
    select m.role from messages m
     where m.tenant_id = $1 and m.session_id = $2 and m.voided_at_seq is null and not m.is_summary order by m.seq desc limit 1";

pub(super) const STANDING: &str = "-- store::admission::standing
    select r.state, r.turn_id, r.next_seq, r.revision, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Starts a turn in an existing, idle session. None: it is not idle, the request is known, the configuration changed since it
    /// was read, or there is nothing to continue; [`Store::standing`] tells.
    pub async fn admit(&self, key: &SessionKey, admission: &Admission<'_>) -> Result<Option<Grant>, Error> {
        let (key, bound) = (Key::from(key), AdmissionParams::new(self, admission));
        let mut params = admission.rows.params(&key);
        params.extend(bound.params());
        params.push(&admission.continues);
        let admit = Query::new(ADMIT, params);
        // What decides from messages does so behind the lock, in a statement of its own.
        let admitted = if admission.continues {
            self.database.transact(&[lock_run(&key), admit]).await.map(|mut rows| rows.pop().unwrap_or_default())
        } else {
            self.database.write(&admit).await
        };
        match admitted {
            Ok(rows) => rows.first().map(grant).transpose(),
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the transcript ends in something that the model has not answered: a user's message, or results.
    pub async fn asks_for_an_answer(&self, key: &SessionKey) -> Result<bool, Error> {
        let key = Key::from(key);
        let rows = self.database.read(LAST_ROLE, &[&key.tenant, &key.session]).await?;
        let last = rows.first().map(|row| get::<i16>(row, "role").and_then(role)).transpose()?;
        Ok(last.is_some_and(|role| role != Role::Assistant))
    }

    /// Creates a session with its first turn. None: the session exists.
    pub async fn admit_new(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
        new: &NewConfig<'_>,
    ) -> Result<Option<Grant>, Error> {
        let (key, bound, config) = (Key::from(key), AdmissionParams::new(self, admission), ConfigParams::from(new));
        let mut params = admission.rows.params(&key);
        params.extend(bound.params());
        params.extend([&config.toolset_id as Param<'_>, &config.config, &config.tools, &config.tokens, &config.ttl]);
        match self.database.write(&Query::new(ADMIT_NEW, params)).await {
            Ok(rows) => rows.first().map(grant).transpose(),
            // A deleted session keeps its id until it is purged.
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where a session stands and what became of a request; none: there is no such session.
    pub async fn standing(&self, key: &SessionKey, request: Option<&RequestId>) -> Result<Option<Standing>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(STANDING, &[&key.tenant, &key.session, &request.map(RequestId::as_str)]).await?;
        rows.first().map(standing).transpose()
    }
}

struct AdmissionParams<'a> {
    turn: &'a str,
    owner: &'a str,
    lease: f64,
    timeout: f64,
    revision: i64,
    request_id: Option<&'a str>,
    hash: &'a str,
    request: Vec<u8>,
    model: &'a str,
}

impl<'a> AdmissionParams<'a> {
    fn new(store: &'a Store, admission: &Admission<'a>) -> Self {
        Self {
            turn: admission.turn.as_str(),
            owner: &store.replica,
            lease: store.lease.as_secs_f64(),
            timeout: admission.timeout.as_secs_f64(),
            revision: admission.revision,
            request_id: admission.idempotency.request.as_ref().map(RequestId::as_str),
            hash: &admission.idempotency.hash,
            request: codec::turn::encode_request(admission.request),
            model: admission.model,
        }
    }

    /// $27 to $35
    fn params(&self) -> [Param<'_>; 9] {
        [
            &self.turn,
            &self.owner,
            &self.lease,
            &self.timeout,
            &self.revision,
            &self.request_id,
            &self.hash,
            &self.request,
            &self.model,
        ]
    }
}

fn standing(row: &Row) -> Result<Standing, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(Standing {
        state: SessionState::from_number(get(row, "state")?)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: Seq(next_seq - 1),
        revision: get(row, "revision")?,
        remembered: hash.zip(result).map(|(hash, result)| Remembered { hash, result }),
    })
}
