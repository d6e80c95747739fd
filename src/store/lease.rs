//! Leases: renewed by a heartbeat, taken over when they run out, handed over when a replica stops; and cancels, which take the
//! lease where nobody holds it.

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    session::{SessionState, remembered},
    turn::LOCK_RUN,
};
use crate::model::{CancelCause, Fence, RequestId, Seq, SessionId, SessionKey, TenantId, TurnId, command::Idempotency};

/// A turn that this replica believes to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which session.
    pub key: SessionKey,
    /// Under which epoch.
    pub epoch: i64,
}

/// Why a turn must stop here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interruption {
    /// Somebody wants it cancelled.
    Cancelled,
    /// The lease is no longer in force.
    Lost,
}

/// What a heartbeat found of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// Which.
    pub held: Held,
    /// The lease is still this replica's.
    pub mine: bool,
    /// It was renewed; else the row was being written, and that write renewed it.
    pub renewed: bool,
    /// Somebody wants the turn cancelled.
    pub cancelled: bool,
}

/// A turn that may have to be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which session.
    pub key: SessionKey,
    /// Under which epoch it was seen.
    pub epoch: i64,
    /// Whether it waits for tools: then a deadline passed, else a lease.
    pub waiting: bool,
}

/// A session that somebody follows, and up to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Which.
    pub key: SessionKey,
    /// The newest seq that is known.
    pub after: Seq,
}

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The turn that is to end, or that a repeated request reached first; none: no such turn is live.
    pub turn: Option<TurnId>,
    /// The fence, when the turn is to end now and this replica owns it, be it since this cancel.
    pub fence: Option<Fence>,
    /// The hash that the idempotency key came with first.
    pub hash: Option<String>,
}

/// `session_run.cancel` of a turn that is to stop.
const STOP: i16 = 1;
/// The same of a turn whose messages are to be taken back.
pub(super) const ROLLBACK: i16 = 2;

pub(super) const BEAT: &str = include_str!("sql/beat.sql");
pub(super) const TAKEOVER: &str = include_str!("sql/takeover.sql");
pub(super) const CANCEL: &str = include_str!("sql/cancel.sql");
pub(super) const HAND_OVER: &str = "-- store::lease::hand_over
    update session_run set op = op + 1, owner = null, lease_until = '-infinity'
     where tenant_id = $1 and session_id = $2 and epoch = $3 and op = $4 and state = 1 returning 1";
pub(super) const LET_GO: &str = "-- store::lease::let_go
    update session_run set op = op + 1, owner = null, lease_until = '-infinity'
     where tenant_id = $1 and session_id = $2 and owner = $3 and epoch <> $4 and state = 1 returning 1";
pub(super) const HEADS: &str = "-- store::lease::heads
    select u.tenant as tenant_id, u.session as session_id, coalesce(r.next_seq, 1) as next_seq, coalesce(r.state, 3::smallint) as state
      from unnest($1::text[], $2::text[], $3::bigint[]) as u(tenant, session, after)
      left join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.next_seq is null or r.next_seq > u.after + 1 or r.state in (1, 3)";
pub(super) const CANCELS: &str = "-- store::lease::cancels
    select r.tenant_id, r.session_id, u.epoch, r.epoch <> u.epoch as lost
      from unnest($1::text[], $2::text[], $3::bigint[]) as u(tenant, session, epoch)
      join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.epoch <> u.epoch or (r.cancel <> 0 and r.state = 1)";

impl Store {
    /// Renews the leases of the turns in the replica's memory, in one statement that waits for nobody.
    pub async fn beat(&self, held: &[Held]) -> Result<Vec<Pulse>, Error> {
        let tenants: Vec<&str> = held.iter().map(|held| held.key.tenant.as_str()).collect();
        let sessions: Vec<&str> = held.iter().map(|held| held.key.session.as_str()).collect();
        let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
        let lease = self.lease.as_secs_f64();
        let rows = self.aside().read(BEAT, &[&self.replica, &tenants, &sessions, &epochs, &lease]).await?;
        rows.iter()
            .map(|row| {
                Ok(Pulse {
                    held: Held { key: session_key(row)?, epoch: get(row, "epoch")? },
                    mine: get(row, "mine")?,
                    renewed: get(row, "renewed")?,
                    cancelled: get::<i16>(row, "cancel")? != 0,
                })
            })
            .collect()
    }

    /// Which of these turns somebody wants cancelled, and which have another owner or none: their sessions were deleted, for example.
    pub async fn cancels(&self, held: &[Held]) -> Result<Vec<(Held, Interruption)>, Error> {
        let tenants: Vec<&str> = held.iter().map(|held| held.key.tenant.as_str()).collect();
        let sessions: Vec<&str> = held.iter().map(|held| held.key.session.as_str()).collect();
        let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
        let rows = self.aside().read(CANCELS, &[&tenants, &sessions, &epochs]).await?;
        rows.iter()
            .map(|row| {
                let why = if get(row, "lost")? { Interruption::Lost } else { Interruption::Cancelled };
                Ok((Held { key: session_key(row)?, epoch: get(row, "epoch")? }, why))
            })
            .collect()
    }

    /// Turns that nobody owns, in random order, so that replicas do not race for the same ones.
    pub async fn candidates(&self, limit: u32) -> Result<Vec<Candidate>, Error> {
        const SQL: &str = "-- store::lease::candidates
            select tenant_id, session_id, epoch, state = 2 as waiting from session_run
             where live and ((state = 1 and lease_until < now()) or (state = 2 and tool_deadline < now()))
             order by random() limit $1";
        let rows = self.aside().read(SQL, &[&i64::from(limit)]).await?;
        rows.iter()
            .map(|row| {
                Ok(Candidate { key: session_key(row)?, epoch: get(row, "epoch")?, waiting: get(row, "waiting")? })
            })
            .collect()
    }

    /// Takes a turn over. None: somebody else did, or it moved on.
    pub async fn takeover(&self, key: &SessionKey, epoch: i64) -> Result<Option<super::admission::Grant>, Error> {
        let (key, lease) = (Key::from(key), self.lease.as_secs_f64());
        let params: Vec<Param<'_>> = vec![&key.tenant, &key.session, &epoch, &self.replica, &lease];
        let rows = self.database.write(&Query::new(TAKEOVER, params)).await?;
        rows.first().map(super::admission::grant).transpose()
    }

    /// Gives a lease back, so that any replica may go on at once. False: it was no longer this replica's.
    pub async fn hand_over(&self, key: &SessionKey, fence: Fence) -> Result<bool, Error> {
        let key = Key::from(key);
        let params: Vec<Param<'_>> = vec![&key.tenant, &key.session, &fence.epoch, &fence.op];
        Ok(!self.database.write(&Query::new(HAND_OVER, params)).await?.is_empty())
    }

    /// Gives a lease back that is this replica's without its knowing: the answer that granted it was lost. `held` is the epoch that it
    /// does know of. False: there is no such lease.
    pub async fn let_go(&self, key: &SessionKey, held: Option<i64>) -> Result<bool, Error> {
        let (key, held) = (Key::from(key), held.unwrap_or(-1));
        let params: Vec<Param<'_>> = vec![&key.tenant, &key.session, &self.replica, &held];
        Ok(!self.database.write(&Query::new(LET_GO, params)).await?.is_empty())
    }

    /// Asks for a turn to be cancelled. A live owner sees the flag; where there is none the caller becomes the owner. A request
    /// that is known changes nothing.
    pub async fn cancel(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        cause: CancelCause,
        reason: &str,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        self.flag(key, turn, STOP, cause, reason, idempotency).await
    }

    /// The same, and its messages are to be taken back. A turn that is being cancelled already is taken back too.
    pub async fn roll_back(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        reason: &str,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        self.flag(key, turn, ROLLBACK, CancelCause::Requested, reason, idempotency).await
    }

    async fn flag(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        mode: i16,
        cause: CancelCause,
        reason: &str,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        let (key, lease) = (Key::from(key), self.lease.as_secs_f64());
        let cause: i16 = match cause {
            CancelCause::Requested => 1,
            CancelCause::Interrupted => 2,
            CancelCause::Disconnected => 3,
            CancelCause::SessionDeleted => 4,
        };
        let (turn, request) = (turn.map(TurnId::as_str), idempotency.request.as_ref().map(RequestId::as_str));
        let params: Vec<Param<'_>> = vec![
            &key.tenant,
            &key.session,
            &turn,
            &mode,
            &cause,
            &reason,
            &self.replica,
            &lease,
            &request,
            &idempotency.hash,
        ];
        let known = Request::new(&key, request, &idempotency.hash, "");
        let mut answers = self.database.transact(&[lock_run(&key), Query::new(CANCEL, params), known.read()]).await?;
        let known = answers.pop().and_then(|rows| rows.first().map(remembered)).transpose()?;
        let (hash, first) = known.map(|known| (known.hash, known.result)).unzip();
        let found = answers.get(1).and_then(|rows| rows.first());
        let Some(row) = found else {
            let turn = first.filter(|turn| !turn.is_empty()).map(TurnId::new);
            return Ok(Cancelled { turn, fence: None, hash });
        };
        let owner: Option<String> = get(row, "owner")?;
        let fence = Fence { epoch: get(row, "epoch")?, op: get(row, "op")? };
        Ok(Cancelled {
            turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
            fence: (owner.as_deref() == Some(self.replica.as_str())).then_some(fence),
            hash,
        })
    }

    /// Which of the followed sessions have news or a turn that runs: one statement for all that a replica follows. A session that is
    /// gone comes back as deleted.
    pub async fn heads(&self, followed: &[Followed]) -> Result<Vec<(SessionKey, Seq, SessionState)>, Error> {
        let tenants: Vec<&str> = followed.iter().map(|followed| followed.key.tenant.as_str()).collect();
        let sessions: Vec<&str> = followed.iter().map(|followed| followed.key.session.as_str()).collect();
        let after: Vec<i64> = followed.iter().map(|followed| followed.after.0).collect();
        let rows = self.aside().read(HEADS, &[&tenants, &sessions, &after]).await?;
        rows.iter()
            .map(|row| {
                let next_seq: i64 = get(row, "next_seq")?;
                Ok((session_key(row)?, Seq(next_seq - 1), SessionState::from_number(get(row, "state")?)?))
            })
            .collect()
    }
}

/// An idempotency key inside a transaction: written unconditionally, read back after.
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

    pub(super) fn insert(&self) -> Query<'_> {
        const SQL: &str = "-- store::lease::Request::insert
            insert into idempotency (tenant_id, session_id, request_id, req_hash, result)
            select r.tenant_id, r.session_id, $3, $4, $5 from session_run r
             where r.tenant_id = $1 and r.session_id = $2 and $3::text is not null on conflict do nothing";
        Query::new(SQL, vec![&self.key.tenant as Param<'_>, &self.key.session, &self.request, &self.hash, &self.result])
    }

    pub(super) fn read(&self) -> Query<'_> {
        const SQL: &str = "-- store::lease::Request::read
            select req_hash, result from idempotency where tenant_id = $1 and session_id = $2 and request_id = $3";
        Query::new(SQL, vec![&self.key.tenant as Param<'_>, &self.key.session, &self.request])
    }
}

/// The first statement of every transaction that decides from other rows of the session.
pub(super) fn lock_run(key: &Key) -> Query<'_> {
    Query::new(LOCK_RUN, vec![&key.tenant as Param<'_>, &key.session])
}

pub(super) fn session_key(row: &tokio_postgres::Row) -> Result<SessionKey, Error> {
    Ok(SessionKey::new(
        TenantId::new(get::<String>(row, "tenant_id")?),
        SessionId::new(get::<String>(row, "session_id")?),
    ))
}
