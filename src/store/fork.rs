//! Forks: a session's transcript up to a seq, copied into a session of its own: in one statement,
//! or in batches if it is long.
//!
//! A fork that is copied in batches is a deleted session until it is complete: its hot row keeps
//! the id, no reader sees it, and what is left of it when its lease runs out is purged as that of
//! any deleted session. Its `turn_id` names the claim.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    AdmittedAt, Error, Store,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    version::FIRST_REVISION,
};
use crate::model::{CallId, RequestId, Seq, SessionId, SessionKey, command::Idempotency};

pub(super) static FORK: LazyLock<Named> = named_alone!("sql/fork.sql");
pub(super) static OPEN_AT: LazyLock<Named> = named_alone!("sql/open_at.sql");

/// How long a session is up to a seq, as far as it matters.
const LENGTH: &str = "-- store::fork::length: $3 the seq $4 most messages
    select count(*) as messages,
           coalesce(sum((select sum(octet_length(p.body) + coalesce(octet_length(p.rest), 0)) from parts p
                          where p.tenant_id = $1 and p.session_id = $2 and p.message_id = m.message_id)), 0)::bigint as bytes
      from (select n.message_id from messages n where n.tenant_id = $1 and n.session_id = $2 and n.seq <= $3 limit $4) m";

static CLAIM: LazyLock<Named> = named_alone!("sql/fork_claim.sql");
static COPY_MESSAGES: LazyLock<Named> = named_alone!("sql/fork_batch.sql");
static COPY_CALLS: LazyLock<Named> = named_alone!("sql/fork_calls.sql");
static OPEN_FORK: LazyLock<Named> = named_alone!("sql/fork_open.sql");

/// How a claim begins; no turn is called so.
const CLAIM_PREFIX: &str = "fork:";

/// How much of a session one statement copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Most messages.
    pub messages: u32,
    /// Most bytes as they are stored, beside one message.
    pub bytes: i64,
}

/// A fork that is copied in batches.
#[derive(Debug, Clone)]
pub struct Copying {
    source: Key,
    /// When it was created: a session that takes its id later is another one.
    source_created: Timestamp,
    at: Seq,
    new: String,
    claim: String,
    lease: f64,
    /// What the messages copied so far add up to.
    copied: Copied,
}

#[derive(Debug, Clone, Default)]
struct Copied {
    messages: i32,
    overhead: i64,
    tokens: [i64; 9],
    parts: [i32; 9],
}

/// A session that is to be forked, as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Which.
    pub key: &'a SessionKey,
    /// When it was created. Another session may get its id.
    pub created: Timestamp,
    /// Up to where.
    pub at: Seq,
}

/// What came of one batch of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch<T> {
    /// Copied up to this one.
    UpTo(T),
    /// Nothing was left.
    Done,
    /// The source was deleted.
    SourceGone,
}

/// A fork with this id that is being copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its lease has expired.
    pub abandoned: bool,
    /// The hash of the request that began it, if it has this idempotency key.
    pub hash: Option<String>,
}

impl Store {
    /// How long a claim lasts after a batch was sent: two statements, each to its last moment. The
    /// one before is what others see until a batch is committed.
    pub fn fork_lease(&self) -> Duration {
        2 * self.database.answer_timeout()
    }

    /// Whether a session is longer than this up to a seq.
    pub async fn is_longer(&self, key: &SessionKey, at: Seq, than: Piece) -> Result<bool, Error> {
        let key = Key::from(key);
        let most = i64::from(than.messages) + 1;
        let rows = self
            .database
            .read(LENGTH, &[&key.tenant, &key.session, &at.0, &most])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let (messages, bytes): (i64, i64) = (get(row, "messages")?, get(row, "bytes")?);
        Ok(messages >= most || bytes > than.bytes)
    }

    /// Takes the id of a fork that is to be copied in batches, each within `lease` of the one
    /// before. `None` means there is no such session, or one with the new id exists or is being
    /// made. `claim` is unique.
    pub async fn claim_fork(
        &self,
        source: Source<'_>,
        new: &SessionId,
        claim: &str,
        lease: Duration,
        idempotency: &Idempotency,
    ) -> Result<Option<Copying>, Error> {
        let Source { key, created, at } = source;
        let source = Key::from(key);
        let new = new.as_str().to_owned();
        let claim = format!("{CLAIM_PREFIX}{claim}");
        let lease = lease.as_secs_f64();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let known_at = AdmittedAt::current();
        let claimed = CLAIM.query(&[
            ("tenant", &source.tenant as Param<'_>),
            ("session", &source.session),
            ("at", &at.0),
            ("new_session", &new),
            ("claim", &claim),
            ("lease", &lease),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
            ("known_at", &known_at),
            ("source_created", &created),
        ])?;
        match self.database.write(&claimed).await {
            Ok(rows) if rows.is_empty() => self.check_tenant(&source.tenant).await.map(|()| None),
            Ok(_) => Ok(Some(Copying {
                source,
                source_created: created,
                at,
                new,
                claim,
                lease,
                copied: Copied::default(),
            })),
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The fork with this id that is being copied. `None` means there is none.
    pub async fn claimed_fork(
        &self,
        key: &SessionKey,
        request: Option<&RequestId>,
    ) -> Result<Option<Claimed>, Error> {
        const SQL: &str = "-- store::fork::claimed_fork
            select r.lease_until < now() as abandoned, i.req_hash
              from session_run r
              left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
             where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and starts_with(r.turn_id, $4)";
        let key = Key::from(key);
        let request = request.map(RequestId::as_str);
        let rows = self
            .database
            .read(SQL, &[&key.tenant, &key.session, &request, &CLAIM_PREFIX])
            .await?;
        let claimed = |row: &Row| {
            Ok(Claimed {
                abandoned: get(row, "abandoned")?,
                hash: get(row, "req_hash")?,
            })
        };
        rows.first().map(claimed).transpose()
    }

    /// Copies the messages after `after`, as far as they fit.
    pub async fn copy_messages(
        &self,
        copying: &mut Copying,
        after: Seq,
        piece: Piece,
    ) -> Result<Batch<Seq>, Error> {
        let Copying {
            source,
            source_created,
            at,
            new,
            claim,
            lease,
            copied,
        } = copying;
        let limit = i64::from(piece.messages);
        let batch = COPY_MESSAGES.query(&[
            ("tenant", &source.tenant as Param<'_>),
            ("session", &source.session),
            ("at", &at.0),
            ("new_session", new),
            ("claim", claim),
            ("lease", lease),
            ("after", &after.0),
            ("most_messages", &limit),
            ("most_bytes", &piece.bytes),
            ("source_created", source_created),
        ])?;
        let rows = self.database.write(&batch).await?;
        let Some(row) = in_force(&rows)? else {
            return Ok(Batch::SourceGone);
        };
        copied.messages += get::<i32>(row, "messages")?;
        copied.overhead += get::<i64>(row, "overhead")?;
        add(&mut copied.tokens, &get::<Vec<i64>>(row, "tokens")?);
        add(&mut copied.parts, &get::<Vec<i32>>(row, "parts")?);
        let last = get::<Option<i64>>(row, "last")?;
        Ok(last.map_or(Batch::Done, |last| Batch::UpTo(Seq(last))))
    }

    /// Copies at most `limit` calls after this one.
    pub async fn copy_calls(
        &self,
        copying: &Copying,
        after: &str,
        limit: u32,
    ) -> Result<Batch<String>, Error> {
        let Copying {
            source,
            source_created,
            at,
            new,
            claim,
            lease,
            copied: _,
        } = copying;
        let limit = i64::from(limit);
        let copy = COPY_CALLS.query(&[
            ("tenant", &source.tenant as Param<'_>),
            ("session", &source.session),
            ("at", &at.0),
            ("new_session", new),
            ("claim", claim),
            ("lease", lease),
            ("after", &after),
            ("most", &limit),
            ("source_created", source_created),
        ])?;
        let rows = self.database.write(&copy).await?;
        let Some(row) = in_force(&rows)? else {
            return Ok(Batch::SourceGone);
        };
        let last = get::<Option<String>>(row, "last")?;
        Ok(last.map_or(Batch::Done, Batch::UpTo))
    }

    /// Makes the fork, of which everything is copied, a session. False: its source was deleted
    /// meanwhile.
    pub async fn open_fork(&self, copying: &Copying) -> Result<bool, Error> {
        let Copying {
            source,
            source_created,
            at,
            new,
            claim,
            lease: _,
            copied,
        } = copying;
        let tokens = copied.tokens.as_slice();
        let parts = copied.parts.as_slice();
        let open = OPEN_FORK.query(&[
            ("tenant", &source.tenant as Param<'_>),
            ("session", &source.session),
            ("at", &at.0),
            ("new_session", new),
            ("claim", claim),
            ("revision", &FIRST_REVISION),
            ("messages", &copied.messages),
            ("overhead", &copied.overhead),
            ("tokens", &tokens),
            ("parts", &parts),
            ("source_created", source_created),
        ])?;
        Ok(!self.database.write(&open).await?.is_empty())
    }

    /// Gives up a fork: what was copied of it may be removed at once.
    pub async fn give_up_fork(&self, copying: &Copying) -> Result<(), Error> {
        const SQL: &str = "-- store::fork::give_up_fork
            update session_run r set lease_until = '-infinity'
             where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and r.turn_id = $3";
        let Copying {
            source, new, claim, ..
        } = copying;
        self.database
            .write(&Query::new(
                SQL,
                vec![&source.tenant as Param<'_>, new, claim],
            ))
            .await
            .map(drop)
    }

    /// The calls that had no result when the session was at a seq, in the order the model made
    /// them.
    pub async fn open_calls_at(&self, key: &SessionKey, at: Seq) -> Result<Vec<CallId>, Error> {
        let key = Key::from(key);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("at", &at.0),
        ];
        let rows = self.database.read_named(&OPEN_AT, &values).await?;
        rows.iter()
            .map(|row| Ok(CallId::new(get::<String>(row, "call_id")?)))
            .collect()
    }

    /// Makes a session with the transcript of another one as it was at a seq, at which no call may
    /// be open, and with its configuration in force. False: there is no such session any more, or
    /// one with the new id exists.
    pub async fn fork(
        &self,
        source: Source<'_>,
        new: &SessionId,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        let Source { key, created, at } = source;
        let key = Key::from(key);
        let new = new.as_str();
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let known_at = AdmittedAt::current();
        let fork = FORK.query(&[
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("at", &at.0),
            ("new_session", &new),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
            ("revision", &FIRST_REVISION),
            ("known_at", &known_at),
            ("source_created", &created),
        ])?;
        match self.database.write(&fork).await {
            Ok(rows) if rows.is_empty() => self.check_tenant(&key.tenant).await.map(|()| false),
            Ok(_) => Ok(true),
            // Rows of a session that was deleted are there until they are purged.
            Err(Error::Duplicate(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The answer of a batch, if its claim is in force. `None`: its source is gone.
fn in_force(rows: &[Row]) -> Result<Option<&Row>, Error> {
    let row = rows
        .first()
        .ok_or_else(|| Error::Corrupt("a batch without an answer".to_owned()))?;
    match (get::<i64>(row, "sources")?, get::<i64>(row, "claims")?) {
        (0, _) => Ok(None),
        (_, 0) => Err(Error::Conflict("the fork was given up".to_owned())),
        _ => Ok(Some(row)),
    }
}

fn add<N: Copy + std::ops::AddAssign>(sums: &mut [N; 9], more: &[N]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += *more;
    }
}
