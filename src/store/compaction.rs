//! Compactions: created under a separate lease, put in force, and reverted.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult},
    counters::shift,
    idempotency::{READ, StoredRequest, stored_request},
    key::Key,
    named_parameters::Named,
    number::Number as _,
    row::get,
    seen::{SESSION, SessionSnapshot, seen_session},
};
use crate::{
    model::{CompactionId, CompactionState, Payload, RequestId, Seq, SessionKey, command::Idempotency},
    session::{
        Session, SessionState,
        change::Change,
        compaction::{self, AppliedCompaction, FailedCompaction, NewCompaction},
        compaction_rows::{CompactionChange, Replacement},
    },
};

/// State of the session after a successful write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextUpdate {
    pub context_version: i64,
    pub last_seq: Seq,
}

impl ContextUpdate {
    pub(super) fn of(session: &Session) -> Self {
        Self { context_version: session.context_version, last_seq: session.last_seq() }
    }
}

/// The outcome of a write, or the state of the session that refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// The state after the write. `None` if nothing was written; the other fields give the reason.
    pub update: Option<ContextUpdate>,
    /// The version of the context. `None` if the session does not exist.
    pub context_version: Option<i64>,
    /// State of the compaction. `None` if it does not exist. If a call is repeated after its response was lost, this
    /// shows that it had succeeded.
    pub status: Option<CompactionState>,
    /// The running compaction.
    pub running: Option<CompactionId>,
    /// The stored result for the idempotency key.
    pub stored_request: Option<StoredRequest>,
}

pub(super) const RENEW: &str = "-- store::compaction::renew
    update compactions set lease_until = now() + make_interval(secs => $4)
     where tenant_id = $1 and session_id = $2 and compaction_id = $3 and status = 1 returning 1";
/// State of a compaction, and the compaction in force with its effect on the counters.
pub(super) static STANDING: LazyLock<Named> = named_alone!("sql/compactions/standing.sql");

/// State of a session's compactions.
struct Seen {
    session: Option<SessionSnapshot>,
    /// State of the requested compaction.
    status: Option<CompactionState>,
    in_force: Option<AppliedCompaction>,
    stored_request: Option<StoredRequest>,
}

impl Store {
    /// Begins a compaction, unless one is running or the context has changed. A running compaction whose lease has
    /// expired is failed first.
    pub async fn begin_compaction(
        &self,
        key: &SessionKey,
        beginning: &NewCompaction<'_>,
        idempotency: &Idempotency,
    ) -> Result<CompactionOutcome, Error> {
        let id = beginning.compaction;
        let begin = |session: &Session, _: Option<&AppliedCompaction>| compaction::begin(session, beginning);
        self.compact(key, id, ("", Some(idempotency)), begin).await
    }

    /// Renews the lease of a compaction. Returns false if it no longer runs.
    pub async fn renew_compaction(&self, key: &SessionKey, compaction: &CompactionId) -> Result<bool, Error> {
        let key = Key::from(key);
        let (id, lease) = (compaction.as_str(), self.lease_ttl.as_secs_f64());
        // The session version is raised, so that a writer that saw the lease expired decides again.
        let queries = [key.increment_version(), key.query(RENEW, &[&id, &lease])];
        let answers = self.database.transact(&queries).await?;
        Ok(answers.last().is_some_and(|renewed| !renewed.is_empty()))
    }

    /// Puts a compaction in force, if it still runs and the context still has the version it was made from.
    pub async fn swap_compaction(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        replacement: &Replacement<'_>,
    ) -> Result<CompactionOutcome, Error> {
        let estimator = &replacement.rows.estimator;
        let swap = |session: &Session, in_force: Option<&AppliedCompaction>| {
            compaction::swap(session, in_force, id, replacement)
        };
        self.compact(key, id, (estimator, None), swap).await
    }

    /// Marks a running compaction as failed.
    pub async fn fail_compaction(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        given_up: &FailedCompaction<'_>,
    ) -> Result<CompactionOutcome, Error> {
        let fail = |session: &Session, _: Option<&AppliedCompaction>| compaction::fail(session, id, given_up);
        self.compact(key, id, ("", None), fail).await
    }

    /// Reverts the newest applied compaction, if it is this one and the context has version `seen`.
    pub async fn revert_compaction(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        seen: i64,
        reverted: &Payload,
        idempotency: &Idempotency,
    ) -> Result<CompactionOutcome, Error> {
        let revert = |session: &Session, in_force: Option<&AppliedCompaction>| {
            compaction::revert(session, in_force, id, seen, reverted)
        };
        self.compact(key, id, ("", Some(idempotency)), revert).await
    }

    /// Fails the session's compaction if its lease has expired. The context is unchanged.
    pub async fn expire_compaction(&self, key: &SessionKey) -> Result<(), Error> {
        let expire = |seen: &SessionSnapshot| compaction::expire(&seen.session);
        let commit = CommitMetadata::default();
        self.change(key, expire, &commit).await.map(drop)
    }

    /// Decides from the state of the session's compactions, and commits. A known request changes nothing.
    async fn compact<'a>(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        (estimator, request): (&str, Option<&Idempotency>),
        decide: impl Fn(&Session, Option<&AppliedCompaction>) -> Option<Change<'a>>,
    ) -> Result<CompactionOutcome, Error> {
        let counted = CommitMetadata::counted_by(estimator);
        let commit = request.map_or(counted, |request| counted.storing(request, RequestResult::Text(id.as_str())));
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let seen = self.compactions_seen(key, id, request).await?;
            let (Some(session), None) = (&seen.session, &seen.stored_request) else {
                return Ok(seen.refused());
            };
            let Some(change) = decide(&session.session, seen.in_force.as_ref()) else {
                return Ok(seen.refused());
            };
            if self.commit(key, session.before(), &change, &commit).await?.is_some() {
                return Ok(written(&change, id));
            }
        }
        Err(Error::Conflict("concurrent writes prevented a compaction".to_owned()))
    }

    async fn compactions_seen(
        &self,
        key: &SessionKey,
        id: &CompactionId,
        request: Option<&Idempotency>,
    ) -> Result<Seen, Error> {
        let key = Key::from(key);
        let id = id.as_str();
        let request = request.and_then(|idempotency| idempotency.request.as_ref());
        let request = request.map(RequestId::as_str);
        let mut queries = vec![key.named(&SESSION, &[])?, key.named(&STANDING, &[("compaction", &id)])?];
        queries.extend(request.map(|_| key.query(READ, &[&request])));
        let answers = self.database.read_together(&queries).await?;
        let row = |at: usize| answers.get(at).and_then(|rows| rows.first());
        let number: Option<i16> = row(1).map(|row| get(row, "status")).transpose()?.flatten();
        Ok(Seen {
            session: row(0).map(seen_session).transpose()?,
            status: number.map(CompactionState::of_number).transpose()?,
            in_force: row(1).map(in_force).transpose()?.flatten(),
            stored_request: row(2).map(stored_request).transpose()?,
        })
    }
}

/// The outcome of a committed change to this compaction.
fn written(change: &Change<'_>, id: &CompactionId) -> CompactionOutcome {
    let session = &change.session;
    let status = |compaction: &CompactionChange<'_>| match compaction {
        CompactionChange::Begins { compaction, .. } => (*compaction == id).then_some(CompactionState::Running),
        CompactionChange::Fails { compaction, .. } => (compaction == id).then_some(CompactionState::Failed),
        CompactionChange::Applies { compaction, .. } => (compaction == id).then_some(CompactionState::Applied),
        CompactionChange::Reverts { compaction, .. } => (compaction == id).then_some(CompactionState::Reverted),
    };
    let running = session.compaction.as_ref();
    CompactionOutcome {
        update: Some(ContextUpdate::of(session)),
        context_version: Some(session.context_version),
        status: change.compactions.iter().find_map(status),
        running: running.map(|running| running.id.clone()),
        stored_request: None,
    }
}

impl Seen {
    fn refused(&self) -> CompactionOutcome {
        let session = self.session.as_ref().map(|seen| &seen.session);
        let session = session.filter(|session| session.state != SessionState::Deleted);
        let running = session.and_then(|session| session.compaction.as_ref());
        // A compaction with an expired lease does not block others: the next one fails it.
        let running = running.filter(|running| !running.lease_is_over);
        CompactionOutcome {
            update: None,
            context_version: session.map(|session| session.context_version),
            status: session.and(self.status),
            running: running.map(|running| running.id.clone()),
            stored_request: self.stored_request.clone(),
        }
    }
}

fn in_force(row: &Row) -> Result<Option<AppliedCompaction>, Error> {
    let Some(id) = get::<Option<String>>(row, "compaction_id")? else {
        return Ok(None);
    };
    applied(CompactionId::new(id), row).map(Some)
}

/// A compaction with its effect on the counters.
pub(super) fn applied(id: CompactionId, row: &Row) -> Result<AppliedCompaction, Error> {
    let shift = shift(row)?;
    Ok(AppliedCompaction { id, shift })
}
