//! Leases: renewed by a heartbeat, taken over when they run out, handed over when a replica stops;
//! and cancels, which take the lease where it is free.

use std::sync::LazyLock;

use super::{
    Error, Store,
    commit::{Committed, Led, Races, Remember},
    grant::{Grant, grant},
    idempotency::Remembered,
    named_parameters::Named,
    pipeline::Param,
    row::{get, session_key, session_state},
    seen::SeenSession,
};
use crate::{
    model::{CancelCause, Fence, Seq, SessionKey, TurnFence, TurnId, command::Idempotency},
    session::{
        CancelRequest, SessionState,
        cancel::{self, Before, Cancel},
        change::Change,
        ownership::{self, Heir},
    },
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

pub(super) static BEAT: LazyLock<Named> = named_alone!("sql/beat.sql");
static CANDIDATES: LazyLock<Named> = named_alone!("sql/lease/candidates.sql");
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
        let take_over =
            |seen: &SeenSession| ownership::take_over(&seen.session, epoch, self.heir(), seen.now);
        self.grant(key, take_over).await
    }

    /// Gives a lease back, so that any replica may go on at once. False: it was no longer this
    /// replica's.
    pub async fn hand_over(&self, key: &SessionKey, right: TurnFence<'_>) -> Result<bool, Error> {
        let hand_over =
            |seen: &SeenSession| ownership::hand_over(&seen.session, right, &self.replica);
        Ok(self
            .change(key, hand_over, &Committed::default())
            .await?
            .is_some())
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
        let Grant { fence, turn, .. } = seen;
        let adopt =
            |now: &SeenSession| ownership::adopt(&now.session, turn, fence.epoch, self.heir());
        self.grant(key, adopt).await
    }

    /// Gives a lease back that this replica was seen to have, whatever was written under its epoch
    /// since. False: it has it no longer.
    pub async fn release(&self, key: &SessionKey, seen: &Grant) -> Result<bool, Error> {
        let Grant { fence, turn, .. } = seen;
        let release =
            |now: &SeenSession| ownership::release(&now.session, turn, fence.epoch, &self.replica);
        Ok(self
            .change(key, release, &Committed::default())
            .await?
            .is_some())
    }

    /// A change that makes this replica the owner.
    async fn grant(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SeenSession) -> Option<Change<'static>>,
    ) -> Result<Option<Grant>, Error> {
        let became = self.change(key, decide, &Committed::default()).await?;
        Ok(became.as_ref().and_then(Grant::of))
    }

    pub(super) fn heir(&self) -> Heir<'_> {
        Heir {
            replica: &self.replica,
            lease: self.lease,
        }
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
        let request = CancelRequest {
            cause,
            reason: reason.to_owned(),
            rollback: false,
        };
        self.request_cancel(key, turn, &request, idempotency).await
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
        let request = CancelRequest {
            cause: CancelCause::Requested,
            reason: reason.to_owned(),
            rollback: true,
        };
        self.request_cancel(key, turn, &request, idempotency).await
    }

    async fn request_cancel(
        &self,
        key: &SessionKey,
        turn: Option<&TurnId>,
        request: &CancelRequest,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        let cancel = Cancel {
            turn,
            request,
            replica: &self.replica,
            lease: self.lease,
        };
        let mut races = Races::over("a cancel");
        loop {
            let (seen, known) = self.read_session_and_request(key, idempotency).await?;
            let before = known.as_ref().map(|known| reached(known, idempotency));
            let change = seen
                .as_ref()
                .and_then(|seen| cancel::apply(&seen.session, &cancel, before.as_ref()));
            let (Some(seen), Some(change)) = (seen, change) else {
                return self.reached_nothing(key, idempotency).await;
            };
            let session = &change.session;
            let led = session.turn.as_ref().map_or("", TurnId::as_str);
            let commit = Committed {
                request: Some(Remember {
                    request: idempotency,
                    led: Led::To(led),
                    is_new: false,
                }),
                ..Committed::default()
            };
            let before = (seen.version, &seen.session);
            if self.commit(key, before, &change, &commit).await?.is_some() {
                return Ok(Cancelled {
                    turn: session.turn.clone(),
                    fence: session.is_owned_by(&self.replica).then_some(session.fence),
                    hash: idempotency
                        .request
                        .as_ref()
                        .map(|_| idempotency.hash.clone()),
                });
            }
            races.lost()?;
        }
    }

    /// Remembers that a request reached no turn. What its key came with first may have reached one.
    async fn reached_nothing(
        &self,
        key: &SessionKey,
        idempotency: &Idempotency,
    ) -> Result<Cancelled, Error> {
        let known = self.remember_request(key, idempotency).await?;
        let (hash, turn) = known.map(|known| (known.hash, known.result)).unzip();
        Ok(Cancelled {
            turn: turn.filter(|turn| !turn.is_empty()).map(TurnId::new),
            fence: None,
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
                    session_state(get(row, "state")?)?,
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

/// What a request with a known key led to when it came first.
fn reached(known: &Remembered, idempotency: &Idempotency) -> Before {
    let turn = Some(&known.result).filter(|turn| !turn.is_empty());
    if known.hash == idempotency.hash {
        Before::Reached(turn.map(|turn| TurnId::new(turn.clone())))
    } else {
        Before::Other
    }
}
