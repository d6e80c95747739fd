//! Leases: renewed by a heartbeat, taken over when they run out, handed over when a replica stops;
//! and cancels, which take the lease where it is free.

use std::sync::LazyLock;

use super::{
    Error, Store,
    grant::{Grant, grant},
    idempotency::{Request, remembered},
    lock::lock_run,
    named_parameters::{self, Named},
    pipeline::Param,
    row::{get, session_key},
    rows::Key,
    session::SessionState,
};
use crate::model::{
    CancelCause, Fence, RequestId, Seq, SessionKey, TurnFence, TurnId, command::Idempotency,
};

/// A turn that this replica believes to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which session.
    pub key: SessionKey,
    /// Which turn of it.
    pub turn: TurnId,
    /// Under which epoch.
    pub epoch: i64,
}

/// Why a turn must stop here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interruption {
    /// A cancel was requested.
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
    /// A cancel of the turn was requested.
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

/// A followed session, and up to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Which.
    pub key: SessionKey,
    /// The newest seq that is known.
    pub after: Seq,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// The turn that is to end, or that a repeated request reached first. `None` means no such
    /// turn is live.
    pub turn: Option<TurnId>,
    /// The fence, when the turn is to end now and this replica owns it, be it since this cancel.
    pub fence: Option<Fence>,
    /// The hash that the idempotency key came with first.
    pub hash: Option<String>,
}

/// `session_run.cancel_cause`.
pub(super) fn cause_number(cause: CancelCause) -> i16 {
    match cause {
        CancelCause::Requested => 1,
        CancelCause::Interrupted => 2,
        CancelCause::Disconnected => 3,
        CancelCause::SessionDeleted => 4,
    }
}

/// `session_run.cancel` of a turn that is to stop.
pub(super) const STOP: i16 = 1;
/// The same of a turn whose messages are to be taken back.
pub(super) const ROLLBACK: i16 = 2;

pub(super) static BEAT: LazyLock<Named> = named_alone!("sql/beat.sql");
static CANDIDATES: LazyLock<Named> = named_alone!("sql/lease/candidates.sql");
pub(super) static TAKEOVER: LazyLock<Named> = named_alone!("sql/takeover.sql");
/// After the row lock. The first one answers.
pub(super) static CANCEL: LazyLock<Vec<Named>> =
    named!["sql/cancel/run.sql", "sql/cancel/request.sql"];
pub(super) static HAND_OVER: LazyLock<Named> = named_alone!("sql/lease/hand_over.sql");
pub(super) static RELEASE: LazyLock<Named> = named_alone!("sql/lease/release.sql");
pub(super) const OWNED_HERE: &str = "-- store::lease::owned_here
    select r.tenant_id, r.session_id, r.epoch, r.op, r.next_seq, r.turn_id
      from unnest($1::text[], $2::text[]) as u(tenant, session)
      join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.owner = $3 and r.state = 1";
pub(super) static ADOPT_OWNED: LazyLock<Named> = named_alone!("sql/lease/adopt_owned.sql");
pub(super) const HEADS: &str = "-- store::lease::heads
    select u.tenant as tenant_id, u.session as session_id, coalesce(r.next_seq, 1) as next_seq, coalesce(r.state, 3::smallint) as state
      from unnest($1::text[], $2::text[], $3::bigint[]) as u(tenant, session, after)
      left join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.next_seq is null or r.next_seq > u.after + 1 or r.state in (1, 3)";
pub(super) static CANCELS: LazyLock<Named> = named_alone!("sql/lease/cancels.sql");

impl Store {
    /// Renews the leases of the turns in the replica's memory, in one statement that waits for no
    /// lock.
    pub async fn beat(&self, held: &[Held]) -> Result<Vec<Pulse>, Error> {
        let tenants: Vec<&str> = held.iter().map(|held| held.key.tenant.as_str()).collect();
        let sessions: Vec<&str> = held.iter().map(|held| held.key.session.as_str()).collect();
        let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
        let lease = self.lease.as_secs_f64();
        let turns: Vec<&str> = held.iter().map(|held| held.turn.as_str()).collect();
        let beat = BEAT.query(&[
            ("replica", &self.replica as Param<'_>),
            ("tenants", &tenants),
            ("sessions", &sessions),
            ("epochs", &epochs),
            ("lease", &lease),
            ("turns", &turns),
        ])?;
        let rows = self.aside().read(beat.sql, &beat.params).await?;
        rows.iter()
            .map(|row| {
                Ok(Pulse {
                    held: held_turn(row)?,
                    mine: get(row, "mine")?,
                    renewed: get(row, "renewed")?,
                    cancelled: get::<i16>(row, "cancel")? != 0,
                })
            })
            .collect()
    }

    /// Of which of these turns a cancel was requested, and which have another owner or none: their
    /// sessions were deleted, for example.
    pub async fn cancels(&self, held: &[Held]) -> Result<Vec<(Held, Interruption)>, Error> {
        let tenants: Vec<&str> = held.iter().map(|held| held.key.tenant.as_str()).collect();
        let sessions: Vec<&str> = held.iter().map(|held| held.key.session.as_str()).collect();
        let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
        let turns: Vec<&str> = held.iter().map(|held| held.turn.as_str()).collect();
        let rows = self
            .aside()
            .read_named(
                &CANCELS,
                &[
                    ("tenants", &tenants as Param<'_>),
                    ("sessions", &sessions),
                    ("epochs", &epochs),
                    ("owner", &self.replica),
                    ("turns", &turns),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let why = if get(row, "lost")? {
                    Interruption::Lost
                } else {
                    Interruption::Cancelled
                };
                Ok((held_turn(row)?, why))
            })
            .collect()
    }

    /// Turns without an owner, in random order, so that replicas do not race for the same ones.
    /// Those of `postponed` sessions are left out.
    pub async fn candidates(
        &self,
        limit: u32,
        postponed: &[SessionKey],
    ) -> Result<Vec<Candidate>, Error> {
        let tenants: Vec<&str> = postponed.iter().map(|key| key.tenant.as_str()).collect();
        let sessions: Vec<&str> = postponed.iter().map(|key| key.session.as_str()).collect();
        let rows = self
            .aside()
            .read_named(
                &CANDIDATES,
                &[
                    ("limit", &i64::from(limit) as Param<'_>),
                    ("tenants", &tenants),
                    ("sessions", &sessions),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Candidate {
                    key: session_key(row)?,
                    epoch: get(row, "epoch")?,
                    waiting: get(row, "waiting")?,
                })
            })
            .collect()
    }

    /// Takes a turn over. `None` means another replica did, or it moved on.
    pub async fn takeover(&self, key: &SessionKey, epoch: i64) -> Result<Option<Grant>, Error> {
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let takeover = TAKEOVER.query(&[
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("epoch", &epoch),
            ("owner", &self.replica),
            ("lease", &lease),
        ])?;
        let rows = self.database.write(&takeover).await?;
        rows.first().map(grant).transpose()
    }

    /// Gives a lease back, so that any replica may go on at once. False: it was no longer this
    /// replica's.
    pub async fn hand_over(&self, key: &SessionKey, right: TurnFence<'_>) -> Result<bool, Error> {
        let key = Key::from(key);
        let fence = right.fence;
        let turn = right.turn.as_str();
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("epoch", &fence.epoch),
            ("op", &fence.op),
            ("owner", &self.replica),
            ("turn", &turn),
        ];
        Ok(!self
            .database
            .write(&HAND_OVER.query(&values)?)
            .await?
            .is_empty())
    }

    /// The turns of these sessions that this replica owns, whether it knows of them or not.
    pub async fn owned_here(&self, keys: &[SessionKey]) -> Result<Vec<(SessionKey, Grant)>, Error> {
        let tenants: Vec<&str> = keys.iter().map(|key| key.tenant.as_str()).collect();
        let sessions: Vec<&str> = keys.iter().map(|key| key.session.as_str()).collect();
        let rows = self
            .aside()
            .read(OWNED_HERE, &[&tenants, &sessions, &self.replica])
            .await?;
        rows.iter()
            .map(|row| Ok((session_key(row)?, grant(row)?)))
            .collect()
    }

    /// Grants a turn that this replica owns without knowing it once more, under another epoch.
    /// Returns `None` if it no longer owns it under the epoch that was seen.
    pub async fn adopt_owned(
        &self,
        key: &SessionKey,
        seen: &Grant,
    ) -> Result<Option<Grant>, Error> {
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let epoch = seen.fence.epoch;
        let turn = seen.turn.as_str();
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("epoch", &epoch),
            ("turn", &turn),
            ("owner", &self.replica),
            ("lease", &lease),
        ];
        let rows = self.database.write(&ADOPT_OWNED.query(&values)?).await?;
        rows.first().map(grant).transpose()
    }

    /// Gives a lease back that this replica was seen to have, whatever was written under its epoch
    /// since. False: it has it no longer.
    pub async fn release(&self, key: &SessionKey, seen: &Grant) -> Result<bool, Error> {
        let key = Key::from(key);
        let epoch = seen.fence.epoch;
        let turn = seen.turn.as_str();
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("epoch", &epoch),
            ("turn", &turn),
            ("owner", &self.replica),
        ];
        Ok(!self
            .database
            .write(&RELEASE.query(&values)?)
            .await?
            .is_empty())
    }

    /// Asks for a turn to be cancelled. A live owner sees the flag; where there is none the caller
    /// becomes the owner. A request that is known changes nothing.
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

    /// The same, and its messages are to be taken back. A turn that is being cancelled already is
    /// taken back too.
    pub async fn roll_back(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        reason: &str,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        self.flag(
            key,
            turn,
            ROLLBACK,
            CancelCause::Requested,
            reason,
            idempotency,
        )
        .await
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
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let cause = cause_number(cause);
        let turn = turn.map(TurnId::as_str);
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("turn", &turn),
            ("mode", &mode),
            ("cause", &cause),
            ("reason", &reason),
            ("owner", &self.replica),
            ("lease", &lease),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
        ];
        let known = Request::new(&key, request, &idempotency.hash, "");
        let mut queries = vec![lock_run(&key)];
        queries.extend(named_parameters::queries(&CANCEL, &values, |name| {
            name != "store::lease::cancel_request" || request.is_some()
        })?);
        queries.push(known.read());
        let mut answers = self.database.transact(&queries).await?;
        let known = answers
            .pop()
            .and_then(|rows| rows.first().map(remembered))
            .transpose()?;
        let (hash, first) = known.map(|known| (known.hash, known.result)).unzip();
        let found = answers.get(1).and_then(|rows| rows.first());
        let Some(row) = found else {
            let turn = first.filter(|turn| !turn.is_empty()).map(TurnId::new);
            return Ok(Cancelled {
                turn,
                fence: None,
                hash,
            });
        };
        let owner: Option<String> = get(row, "owner")?;
        let fence = Fence {
            epoch: get(row, "epoch")?,
            op: get(row, "op")?,
        };
        Ok(Cancelled {
            turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
            fence: (owner.as_deref() == Some(self.replica.as_str())).then_some(fence),
            hash,
        })
    }

    /// Which of the followed sessions have news or a turn that runs: one statement for all that a
    /// replica follows. A session that is gone comes back as deleted.
    pub async fn heads(
        &self,
        followed: &[Followed],
    ) -> Result<Vec<(SessionKey, Seq, SessionState)>, Error> {
        let tenants: Vec<&str> = followed
            .iter()
            .map(|followed| followed.key.tenant.as_str())
            .collect();
        let sessions: Vec<&str> = followed
            .iter()
            .map(|followed| followed.key.session.as_str())
            .collect();
        let after: Vec<i64> = followed.iter().map(|followed| followed.after.0).collect();
        let rows = self
            .aside()
            .read(HEADS, &[&tenants, &sessions, &after])
            .await?;
        rows.iter()
            .map(|row| {
                let next_seq: i64 = get(row, "next_seq")?;
                Ok((
                    session_key(row)?,
                    Seq(next_seq - 1),
                    SessionState::from_number(get(row, "state")?)?,
                ))
            })
            .collect()
    }
}

fn held_turn(row: &tokio_postgres::Row) -> Result<Held, Error> {
    let turn = TurnId::new(get::<String>(row, "turn")?);
    Ok(Held {
        key: session_key(row)?,
        turn,
        epoch: get(row, "epoch")?,
    })
}
