//! Forks: a session's transcript up to a seq is copied to a new session, piece by piece. Rows up to a seq never change,
//! so the copy needs no lock. A check of the source after the last piece proves that no row was missing.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store, commit::CommitMetadata, counters::shift, named_parameters::Named, pipeline::Param, row::get,
    seen::SessionSnapshot,
};
use crate::{
    model::{CallId, RequestId, Seq, SessionId, SessionKey, TurnId, command::Idempotency},
    session::{
        config_rows::NewConfig,
        fork::{self, CLAIM, CopyRange, ForkCopy},
    },
};

pub(super) static OPEN_AT: LazyLock<Named> = named_alone!("sql/fork/open_at.sql");
pub(super) static NEXT_PIECE: LazyLock<Named> = named_alone!("sql/fork/next_piece.sql");

/// The maximum size of one piece, which is copied in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceLimits {
    /// Maximum number of messages.
    pub messages: u32,
    /// Maximum stored size in bytes; one message may exceed it.
    pub bytes: i64,
}

/// The session to fork, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub key: &'a SessionKey,
    /// When it was created. Identifies the session, because its id may be reused.
    pub created: Timestamp,
    /// The seq up to which it is copied.
    pub at: Seq,
}

/// A fork to create.
#[derive(Debug, Clone, Copy)]
pub struct NewFork<'a> {
    pub id: &'a SessionId,
    pub config: NewConfig<'a>,
    /// A unique name of the process that copies it.
    pub claim: &'a str,
    /// How long the claim lasts after each piece.
    pub lease: Duration,
    /// The maximum size of a piece.
    pub most: PieceLimits,
}

/// A fork that is being copied.
#[derive(Debug, Clone)]
pub struct CopyInProgress {
    source: SessionKey,
    /// When the source was created.
    created: Timestamp,
    at: Seq,
    fork: SessionKey,
    claim: TurnId,
    lease: Duration,
    most: PieceLimits,
    /// Messages up to this seq are copied. `None` if all are.
    copied: Option<Seq>,
}

/// The result of copying a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// More messages are left.
    Part,
    Whole,
    SourceGone,
}

/// The fork with an id, while it is being copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedFork {
    /// Whether its lease has expired.
    pub abandoned: bool,
    /// The request hash under the given idempotency key, if the fork was started with this key.
    pub hash: Option<String>,
}

/// The next piece of a session.
struct NextPiece {
    piece: CopyRange,
    /// The seq after which the next piece begins. `None` if this is the last piece.
    rest: Option<Seq>,
    /// The context version of the session.
    context_version: i64,
}

impl CopyInProgress {
    fn source(&self) -> Source<'_> {
        Source { key: &self.source, created: self.created, at: self.at }
    }

    fn forking(&self) -> ForkCopy<'_> {
        ForkCopy { source: &self.source.session, at: self.at, claim: &self.claim, lease: self.lease }
    }
}

impl Store {
    /// Returns how long a claim must last after a piece was sent: the maximum duration of two statements. Until a piece
    /// is committed, other replicas see the claim as set by the previous piece.
    pub fn fork_lease(&self) -> Duration {
        2 * self.database.response_timeout
    }

    /// Claims the id of a fork and copies the first piece. No call may be open at the seq. Returns `None` if the source
    /// does not exist, or a session with the new id exists or is being created.
    pub async fn claim_fork(
        &self,
        source: Source<'_>,
        new: &NewFork<'_>,
        idempotency: &Idempotency,
    ) -> Result<Option<CopyInProgress>, Error> {
        let Some(first) = self.next_piece(source, Seq(0), new.most).await? else {
            return Ok(None);
        };
        let copying = CopyInProgress {
            source: source.key.clone(),
            created: source.created,
            at: source.at,
            fork: SessionKey::new(source.key.tenant.clone(), new.id.clone()),
            claim: TurnId::new(format!("{CLAIM}{}", new.claim)),
            lease: new.lease,
            most: new.most,
            copied: first.rest,
        };
        let forking = copying.forking();
        let claim = |new| {
            let claimed = fork::claim(&new, &forking, first.context_version, &first.piece);
            Some(claimed)
        };
        let request = (idempotency, new.id.as_str());
        let made = Box::pin(self.make_session(&copying.fork, new.config, request, claim)).await?;
        Ok(made.is_some().then_some(copying))
    }

    /// Copies the next piece, if one is left.
    pub async fn copy_piece(&self, copying: &mut CopyInProgress) -> Result<Copied, Error> {
        let Some(after) = copying.copied else {
            return Ok(Copied::Whole);
        };
        let next = self.next_piece(copying.source(), after, copying.most);
        let Some(next) = next.await? else {
            return Ok(Copied::SourceGone);
        };
        let forking = copying.forking();
        let commit = CommitMetadata::default();
        let copy = |seen: &SessionSnapshot| fork::copy(&seen.session, &forking, &next.piece);
        let copied = Box::pin(self.change(&copying.fork, copy, &commit)).await?;
        if copied.is_none() {
            return Err(Error::Conflict("the fork was abandoned".to_owned()));
        }
        copying.copied = next.rest;
        Ok(next.rest.map_or(Copied::Whole, |_| Copied::Part))
    }

    /// Opens the completely copied fork as a session. Returns false if the source was deleted concurrently or the claim
    /// has expired.
    pub async fn open_fork(&self, copying: &CopyInProgress) -> Result<bool, Error> {
        const LIVES: &str = "-- store::fork::lives
            select 1 from sessions s where s.tenant_id = $1 and s.session_id = $2 and s.created_at = $3";
        if self.database.read_in(&copying.source, LIVES, &[&copying.created]).await?.is_empty() {
            return Ok(false);
        }
        let forking = copying.forking();
        let commit = CommitMetadata::default();
        let open = |seen: &SessionSnapshot| fork::open(&seen.session, &forking);
        let opened = Box::pin(self.change(&copying.fork, open, &commit)).await?;
        Ok(opened.is_some())
    }

    /// Abandons a fork. Its copied rows may then be removed at once.
    pub async fn give_up_fork(&self, copying: &CopyInProgress) -> Result<(), Error> {
        let commit = CommitMetadata::default();
        let give_up = |seen: &SessionSnapshot| fork::give_up(&seen.session, &copying.claim);
        let given_up = Box::pin(self.change(&copying.fork, give_up, &commit)).await;
        given_up.map(drop)
    }

    async fn next_piece(
        &self,
        Source { key, created, at }: Source<'_>,
        after: Seq,
        most: PieceLimits,
    ) -> Result<Option<NextPiece>, Error> {
        let messages = i64::from(most.messages);
        let values: [(&str, Param<'_>); 5] = [
            ("at", &at.0),
            ("after", &after.0),
            ("most_messages", &messages),
            ("most_bytes", &most.bytes),
            ("source_created", &created),
        ];
        let rows = self.database.read_named_in(key, &NEXT_PIECE, &values).await?;
        rows.first().map(|row| next_piece(row, after)).transpose()
    }

    /// Finds a fork with this id that is being copied. Returns `None` if there is none.
    pub async fn claimed_fork(
        &self,
        key: &SessionKey,
        request: Option<&RequestId>,
    ) -> Result<Option<ClaimedFork>, Error> {
        const SQL: &str = "-- store::fork::claimed_fork
            select r.lease_until < now() as abandoned, i.req_hash
              from session_run r
              left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
             where r.tenant_id = $1 and r.session_id = $2 and r.state = 3 and starts_with(r.turn_id, $4)";
        let rows = self.database.read_in(key, SQL, &[&request.map(RequestId::as_str), &CLAIM]).await?;
        let claimed = |row: &Row| Ok(ClaimedFork { abandoned: get(row, "abandoned")?, hash: get(row, "req_hash")? });
        rows.first().map(claimed).transpose()
    }

    /// Lists the calls that had no result when the session was at a seq, in the order in which the model made them.
    pub async fn open_calls_at(&self, key: &SessionKey, at: Seq) -> Result<Vec<CallId>, Error> {
        let rows = self.database.read_named_in(key, &OPEN_AT, &[("at", &at.0)]).await?;
        rows.iter().map(|row| Ok(CallId::new(get::<String>(row, "call_id")?))).collect()
    }
}

fn next_piece(row: &Row, after: Seq) -> Result<NextPiece, Error> {
    let last = get::<Option<i64>>(row, "last")?.map(Seq);
    let is_last: bool = get(row, "is_last")?;
    Ok(NextPiece {
        piece: CopyRange { seqs: last.map(|last| (after, last)), shift: shift(row)? },
        rest: last.filter(|_| !is_last),
        context_version: get(row, "context_version")?,
    })
}
