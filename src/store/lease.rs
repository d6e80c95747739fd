//! Leases of turns: renewed by the heartbeat of the replica, taken over when the replica is gone, and handed over when
//! it stops. Also cancel requests, which take the lease if it is free.

use std::sync::{LazyLock, atomic::Ordering};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult, RequestToStore},
    grant::{Grant, grant},
    idempotency::StoredRequest,
    key::key_columns,
    named_parameters::Named,
    number::{Number as _, enum_value},
    pipeline::Param,
    row::{get, last_seq, session_key},
    seen::SessionSnapshot,
};
use crate::{
    model::{Fence, Seq, SessionKey, TurnFence, TurnId, command::Idempotency},
    session::{
        CancelRequest, SessionState,
        cancel::{self, Cancel, EarlierCancel},
        change::Change,
        ownership::{self, NewOwner},
    },
};

/// A turn that this replica believes it is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTurn {
    pub key: SessionKey,
    pub turn: TurnId,
    pub epoch: i64,
}

/// Why a turn must stop on this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interruption {
    /// A cancel was requested.
    Cancelled,
    /// The lease is lost.
    LeaseLost,
}

/// A replica that may have left turns without an owner: its lease has expired, or it handed turns over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanReport {
    replica: String,
    reported_at: Timestamp,
}

/// A turn that may have to be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeoverCandidate {
    pub key: SessionKey,
    /// The epoch that was read.
    pub epoch: i64,
    /// Whether it waits for tool results: then a deadline has passed, otherwise a lease.
    pub waiting: bool,
}

/// A session that a client of this replica follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    pub key: SessionKey,
    /// The newest known seq.
    pub after: Seq,
}

/// The outcome of a cancel request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequestOutcome {
    /// The turn that is being cancelled, or that the first request with the same key reached. `None` if no such turn is
    /// running.
    pub turn: Option<TurnId>,
    /// The fence, if this replica owns the turn, possibly since this request, and must end it.
    pub fence: Option<Fence>,
    /// The request hash that was first stored under the idempotency key.
    pub hash: Option<String>,
}

pub(super) static BEAT: LazyLock<Named> = named_alone!("sql/lease/beat.sql");
static CANDIDATES: LazyLock<Named> = named_alone!("sql/lease/candidates.sql");
pub(super) const LEAVE: &str = "-- store::lease::leave
    update replicas set lease_until = now(), said_at = now() where replica_id = $1";
pub(super) const SIGNS: &str = "-- store::lease::signs
    select p.replica_id, p.said_at from replicas p where p.lease_until < now() or p.gave_back";
// A row is kept until the last lease granted to its replica has expired: until then a turn may still become free.
pub(super) const FORGET: &str = "-- store::lease::forget
    delete from replicas p using unnest($1::text[], $2::timestamptz[]) as u(replica, said_at)
     where p.replica_id = u.replica and p.said_at = u.said_at and p.lease_until < now() - make_interval(secs => $3)";
pub(super) const CALM: &str = "-- store::lease::calm
    update replicas p set gave_back = false from unnest($1::text[], $2::timestamptz[]) as u(replica, said_at)
     where p.replica_id = u.replica and p.said_at = u.said_at and p.gave_back";
// Only turns older than a lease: the grant of a newer turn may not have reached the replica's memory yet.
pub(super) const OWNED_UNKNOWN: &str = "-- store::lease::owned_unknown
    select r.tenant_id, r.session_id, r.epoch, r.op, r.next_seq, r.turn_id
      from turns t join session_run r on r.tenant_id = t.tenant_id and r.session_id = t.session_id
     where t.state = 1 and r.state = 1 and r.owner = $3 and r.lease_until < now()
       and not exists (select from unnest($1::text[], $2::text[]) as k(tenant, session)
                        where k.tenant = r.tenant_id and k.session = r.session_id)
     limit $4";
pub(super) const OWNED_HERE: &str = "-- store::lease::owned_here
    select r.tenant_id, r.session_id, r.epoch, r.op, r.next_seq, r.turn_id
      from unnest($1::text[], $2::text[]) as u(tenant, session)
      join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.owner = $3 and r.state = 1";
pub(super) const HEADS: &str = "-- store::lease::heads
    select u.tenant as tenant_id, u.session as session_id, coalesce(r.next_seq, 1) as next_seq, coalesce(r.state, 3::smallint) as state
      from unnest($1::text[], $2::text[], $3::bigint[]) as u(tenant, session, after)
      left join session_run r on r.tenant_id = u.tenant and r.session_id = u.session
     where r.next_seq is null or r.next_seq > u.after + 1 or r.state in (1, 3)";
pub(super) static CANCELS: LazyLock<Named> = named_alone!("sql/lease/cancels.sql");

impl Store {
    /// Sends the replica's heartbeat, which renews the leases of its turns.
    pub async fn send_heartbeat(&self) -> Result<(), Error> {
        let gave_back = self.handed_over.swap(false, Ordering::Relaxed);
        let lease = self.lease_ttl.as_secs_f64();
        let values: [(&str, Param<'_>); 3] = [("replica", &self.replica), ("lease", &lease), ("gave_back", &gave_back)];
        let beaten = self.reserved().read_named(&BEAT, &values).await;
        if beaten.is_err() && gave_back {
            self.handed_over.store(true, Ordering::Relaxed);
        }
        beaten.map(drop)
    }

    /// Reports that the replica stops and runs no turn, so that other replicas look for its remaining turns at once.
    pub async fn leave(&self) -> Result<(), Error> {
        let left = self.reserved().read(LEAVE, &[&self.replica]).await;
        left.map(drop)
    }

    /// Lists the replicas that may have left turns without an owner.
    pub async fn orphan_reports(&self) -> Result<Vec<OrphanReport>, Error> {
        let rows = self.reserved().read(SIGNS, &[]).await?;
        rows.iter()
            .map(|row| Ok(OrphanReport { replica: get(row, "replica_id")?, reported_at: get(row, "said_at")? }))
            .collect()
    }

    /// Records that no turn without an owner was found after these signs were read. Later reports of the replicas are
    /// kept.
    pub async fn clear_orphan_reports(&self, signs: &[OrphanReport]) -> Result<(), Error> {
        let replicas: Vec<&str> = signs.iter().map(|sign| sign.replica.as_str()).collect();
        let said_at: Vec<Timestamp> = signs.iter().map(|sign| sign.reported_at).collect();
        let lease = self.lease_ttl.as_secs_f64();
        let aside = self.reserved();
        aside.read(FORGET, &[&replicas as Param<'_>, &said_at, &lease]).await?;
        aside.read(CALM, &[&replicas as Param<'_>, &said_at]).await?;
        Ok(())
    }

    /// Lists the turns for which a cancel was requested, and those with another owner or none, for example because the
    /// session was deleted.
    pub async fn interrupted_turns(&self, held: &[HeldTurn]) -> Result<Vec<(HeldTurn, Interruption)>, Error> {
        let (tenants, sessions) = key_columns(held.iter().map(|held| &held.key));
        let epochs: Vec<i64> = held.iter().map(|held| held.epoch).collect();
        let turns: Vec<&str> = held.iter().map(|held| held.turn.as_str()).collect();
        let values: [(&str, Param<'_>); 5] = [
            ("tenants", &tenants),
            ("sessions", &sessions),
            ("epochs", &epochs),
            ("owner", &self.replica),
            ("turns", &turns),
        ];
        let rows = self.reserved().read_named(&CANCELS, &values).await?;
        rows.iter().filter_map(|row| self.interruption(row).transpose()).collect()
    }

    /// Why a turn whose row differs from what its owner knows must stop. Returns `None` if the owner itself left it in
    /// this state, because it has just ended or begun to wait for tool results.
    fn interruption(&self, row: &Row) -> Result<Option<(HeldTurn, Interruption)>, Error> {
        let held = held_turn(row)?;
        let state = get::<Option<i16>>(row, "state")?.map(SessionState::of_number).transpose()?;
        let is_it = get::<Option<i64>>(row, "in_force")? == Some(held.epoch)
            && get::<Option<&str>>(row, "turn_id")? == Some(held.turn.as_str());
        let is_mine = get::<Option<&str>>(row, "owner")? == Some(&self.replica);
        let runs = state == Some(SessionState::Running);
        let left = matches!(state, Some(SessionState::Idle | SessionState::AwaitingTools));
        let why = if is_it && is_mine && runs {
            Some(Interruption::Cancelled)
        } else if is_it && left {
            None
        } else {
            Some(Interruption::LeaseLost)
        };
        Ok(why.map(|why| (held, why)))
    }

    /// Lists turns with calls past their deadline and, with `orphans`, turns without an owner. They are in random
    /// order, so that replicas do not compete for the same turns. Sessions in `postponed` are excluded.
    pub async fn candidates(
        &self,
        orphans: bool,
        limit: u32,
        postponed: &[SessionKey],
    ) -> Result<Vec<TakeoverCandidate>, Error> {
        let (limit, (tenants, sessions)) = (i64::from(limit), key_columns(postponed));
        let values: [(&str, Param<'_>); 4] =
            [("orphans", &orphans), ("limit", &limit), ("tenants", &tenants), ("sessions", &sessions)];
        let rows = self.reserved().read_named(&CANDIDATES, &values).await?;
        let candidate = |row: &Row| {
            let (epoch, waiting) = (get(row, "epoch")?, get(row, "waiting")?);
            Ok(TakeoverCandidate { key: session_key(row)?, epoch, waiting })
        };
        rows.iter().map(candidate).collect()
    }

    /// Takes over a turn. Returns `None` if another replica did, or the turn has advanced.
    pub async fn takeover(&self, key: &SessionKey, epoch: i64) -> Result<Option<Grant>, Error> {
        let take_over =
            |seen: &SessionSnapshot| ownership::take_over(&seen.session, epoch, self.next_owner(), seen.now);
        self.grant(key, take_over).await
    }

    /// Gives a lease back, so that any replica can resume the turn at once. Returns false if this replica no longer had
    /// the lease.
    pub async fn hand_over(&self, key: &SessionKey, right: TurnFence<'_>) -> Result<bool, Error> {
        let hand_over = |seen: &SessionSnapshot| ownership::hand_over(&seen.session, right, &self.replica);
        self.give_back(key, hand_over).await
    }

    /// Commits a change that lets any replica take the turn. The next heartbeat reports it.
    async fn give_back(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SessionSnapshot) -> Option<Change<'static>>,
    ) -> Result<bool, Error> {
        let became = self.change(key, decide, &CommitMetadata::default()).await;
        // If the response was lost, the change may have been committed.
        if !matches!(became, Ok(None)) {
            self.handed_over.store(true, Ordering::Relaxed);
        }
        Ok(became?.is_some())
    }

    /// Lists the turns of these sessions that this replica owns, including those it does not know of.
    pub async fn owned_here(&self, keys: &[SessionKey]) -> Result<Vec<(SessionKey, Grant)>, Error> {
        let (tenants, sessions) = key_columns(keys);
        let rows = self.reserved().read(OWNED_HERE, &[&tenants, &sessions, &self.replica]).await?;
        rows.iter().map(|row| Ok((session_key(row)?, grant(row)?))).collect()
    }

    /// Grants a turn that this replica owns without knowing it, under a new epoch. Returns `None` if the replica no
    /// longer owns it under the epoch that was read.
    pub async fn adopt_owned(&self, key: &SessionKey, seen: &Grant) -> Result<Option<Grant>, Error> {
        let Grant { fence, turn, .. } = seen;
        let adopt = |now: &SessionSnapshot| ownership::adopt(&now.session, turn, fence.epoch, self.next_owner());
        self.grant(key, adopt).await
    }

    /// Takes over a turn from this replica itself after its task failed. Returns `None` if the replica no longer owns
    /// it under the epoch that was read.
    pub async fn repeat(&self, key: &SessionKey, seen: &Grant) -> Result<Option<Grant>, Error> {
        let Grant { fence, turn, .. } = seen;
        let repeat =
            |seen: &SessionSnapshot| ownership::repeat(&seen.session, turn, fence.epoch, self.next_owner(), seen.now);
        self.grant(key, repeat).await
    }

    /// Gives back a lease that this replica had when it was read, regardless of later writes under its epoch. Returns
    /// false if the replica no longer has the lease.
    pub async fn release(&self, key: &SessionKey, seen: &Grant) -> Result<bool, Error> {
        let Grant { fence, turn, .. } = seen;
        let release = |now: &SessionSnapshot| ownership::release(&now.session, turn, fence.epoch, &self.replica);
        self.give_back(key, release).await
    }

    /// Lists turns that this replica has owned for longer than a lease, except those of the `known` sessions.
    pub async fn owned_unknown(&self, known: &[SessionKey], limit: u32) -> Result<Vec<(SessionKey, Grant)>, Error> {
        let (tenants, sessions) = key_columns(known);
        let limit = i64::from(limit);
        let rows = self.reserved().read(OWNED_UNKNOWN, &[&tenants, &sessions, &self.replica, &limit]).await?;
        rows.iter().map(|row| Ok((session_key(row)?, grant(row)?))).collect()
    }

    /// Commits a change that makes this replica the owner.
    async fn grant(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SessionSnapshot) -> Option<Change<'static>>,
    ) -> Result<Option<Grant>, Error> {
        let became = self.change(key, decide, &CommitMetadata::default()).await?;
        Ok(became.as_ref().and_then(Grant::of))
    }

    pub(super) fn next_owner(&self) -> NewOwner<'_> {
        NewOwner { replica: &self.replica, lease: self.lease_ttl }
    }

    /// Requests the cancellation of a turn. A live owner reads the flag; if there is no owner, this replica becomes the
    /// owner. A known request changes nothing. A request to roll back also applies to a turn that is already being
    /// cancelled.
    pub async fn cancel(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        request: &CancelRequest,
        idempotency: &Idempotency,
    ) -> Result<CancelRequestOutcome, Error> {
        let cancel = Cancel { turn, request, replica: &self.replica, lease: self.lease_ttl };
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let (seen, known) = self.read_session_and_request(key, idempotency).await?;
            let before = known.as_ref().map(|known| reached(known, idempotency));
            let change = seen.as_ref().and_then(|seen| cancel::apply(&seen.session, &cancel, before.as_ref()));
            let (Some(seen), Some(change)) = (seen, change) else {
                return self.reached_nothing(key, idempotency).await;
            };
            let session = &change.session;
            let led = session.turn.as_ref().map_or("", TurnId::as_str);
            let commit = CommitMetadata {
                request: Some(RequestToStore { request: idempotency, result: RequestResult::Text(led), is_new: false }),
                ..CommitMetadata::default()
            };
            if self.commit(key, seen.before(), &change, &commit).await?.is_some() {
                return Ok(CancelRequestOutcome {
                    turn: session.turn.clone(),
                    fence: session.is_owned_by(&self.replica).then_some(session.fence),
                    hash: idempotency.request.as_ref().map(|_| idempotency.hash.clone()),
                });
            }
        }
        Err(Error::Conflict("concurrent writes prevented the cancellation of a turn".to_owned()))
    }

    /// Stores that a request reached no turn. The first request with the same key may have reached one.
    async fn reached_nothing(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<CancelRequestOutcome, Error> {
        let known = self.store_request_result(key, idempotency, "").await?;
        let (hash, turn) = known.map(|known| (known.hash, known.result)).unzip();
        Ok(CancelRequestOutcome { turn: turn.filter(|turn| !turn.is_empty()).map(TurnId::new), fence: None, hash })
    }

    /// Reads which of the followed sessions have new events or a running turn, in one statement for all sessions that a
    /// replica follows. A missing session is returned as deleted.
    pub async fn heads(&self, followed: &[Followed]) -> Result<Vec<(SessionKey, Seq, SessionState)>, Error> {
        let (tenants, sessions) = key_columns(followed.iter().map(|followed| &followed.key));
        let after: Vec<i64> = followed.iter().map(|followed| followed.after.0).collect();
        let rows = self.reserved().read(HEADS, &[&tenants, &sessions, &after]).await?;
        rows.iter().map(|row| Ok((session_key(row)?, last_seq(row)?, enum_value(row, "state")?))).collect()
    }
}

fn held_turn(row: &Row) -> Result<HeldTurn, Error> {
    let turn = TurnId::new(get::<String>(row, "turn")?);
    Ok(HeldTurn { key: session_key(row)?, turn, epoch: get(row, "epoch")? })
}

/// The outcome of the first request with the same key.
fn reached(known: &StoredRequest, idempotency: &Idempotency) -> EarlierCancel {
    let turn = Some(&known.result).filter(|turn| !turn.is_empty());
    if known.hash == idempotency.hash {
        EarlierCancel::AppliedTo(turn.map(|turn| TurnId::new(turn.clone())))
    } else {
        EarlierCancel::Other
    }
}
