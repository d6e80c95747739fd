//! The commit of a session change. The session row is written if it still has the version that was read; all other rows
//! of the change are written in the same transaction, in one round trip.

use std::{borrow::Cow, sync::LazyLock, time::Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    AdmittedAt, Error, Store,
    admitted::Read,
    event::totals,
    recent_events::RecentEvent,
    row::get,
    seen::SessionSnapshot,
    session_memory::{AppliedCommit, SessionMemory},
};
use crate::{
    model::{RequestId, Seq, SessionKey, command::Idempotency},
    session::{Session, Version, change::Change},
    telemetry::Trace,
};

mod columns;
mod committed_messages;
mod encoded_rows;
mod event_rows;
mod function;
mod recent_events;
mod values;

use encoded_rows::EncodedRows;
use function::Function;
use recent_events::ReferencedContent;
use values::Values;

/// Maximum number of attempts at a change whose commit lost a race. Each lost race means that another write succeeded,
/// and few clients write to one session at a time. After each of them the change is decided again.
pub(super) const MAX_COMMIT_CONFLICTS: u32 = 100;

/// What a commit writes in addition to its change.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitMetadata<'a> {
    /// Stored in the tool calls that this commit requests, so that they can be found by it.
    pub id: &'a str,
    /// The estimator that counted the tokens.
    pub estimator: &'a str,
    /// The request that caused it.
    pub request: Option<RequestToStore<'a>>,
}

impl<'a> CommitMetadata<'a> {
    /// A commit whose tokens this estimator counted.
    pub(super) fn counted_by(estimator: &'a str) -> Self {
        Self { estimator, ..Self::default() }
    }

    /// The same commit, which stores the result of a new request.
    #[must_use]
    pub(super) fn storing(self, request: &'a Idempotency, result: RequestResult<'a>) -> Self {
        Self { request: Some(RequestToStore { request, result, is_new: true }), ..self }
    }
}

/// A request that is stored with a commit.
#[derive(Debug, Clone, Copy)]
pub struct RequestToStore<'a> {
    /// The idempotency key and hash.
    pub request: &'a Idempotency,
    /// The result so far.
    pub result: RequestResult<'a>,
    /// Whether the commit must fail if the key is already known.
    pub is_new: bool,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestResult<'a> {
    /// This text.
    Text(&'a str),
    /// The newest seq of the change, followed by this text.
    SeqThenText(&'a str),
}

impl<'a> RequestResult<'a> {
    fn text(self, change: &Change<'_>) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::SeqThenText(behind) => Cow::Owned(format!("{}{behind}", change.session.last_seq())),
        }
    }
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitOutcome {
    /// The newest seq of its change, excluding a change that starts in the same commit.
    pub(super) last_seq: Seq,
    /// For a message that joined the queue: when it was enqueued, and when it expires.
    pub(super) joined: Option<(Timestamp, Option<Timestamp>)>,
}

/// The function that writes a commit. Never change it: a new version is created by a new migration. Its name has a
/// number because programs of both versions run in parallel during an upgrade.
static COMMIT: LazyLock<Function> = LazyLock::new(|| Function::read(include_str!("../../migrations/V2__commit.sql")));

impl Store {
    /// Reads a session, decides and commits, repeatedly until the session was not written concurrently. Returns the
    /// session after the change, or `None` if it does not exist, the request of the commit is known, or `decide` changes
    /// nothing.
    pub(super) async fn change<'a>(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SessionSnapshot) -> Option<Change<'a>>,
        commit: &CommitMetadata<'_>,
    ) -> Result<Option<Session>, Error> {
        let none = Idempotency::none();
        let request = commit.request.map_or(&none, |it| it.request);
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let (Some(seen), None) = self.read_session_and_request(key, request).await? else {
                return Ok(None);
            };
            let Some(change) = decide(&seen) else {
                return Ok(None);
            };
            if self.commit(key, seen.before(), &change, commit).await?.is_some() {
                return Ok(Some(change.session));
            }
        }
        Err(Error::Conflict("concurrent writes prevented a change of the session".to_owned()))
    }

    /// Like [`Self::change`], for a new request whose result is stored.
    pub(super) async fn change_for<'a>(
        &self,
        key: &SessionKey,
        (request, led): (&Idempotency, RequestResult<'_>),
        estimator: &str,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> Result<Option<Session>, Error> {
        let commit = CommitMetadata::counted_by(estimator).storing(request, led);
        self.change(key, |seen| decide(&seen.session), &commit).await
    }

    /// Decides from this replica's copy of the session, and commits. Returns `None`, with nothing written, if there is
    /// no copy, `decide` changes nothing, or the session was written since.
    pub(super) async fn commit_from_cache<'a>(
        &self,
        key: &SessionKey,
        decide: impl FnOnce(&Session) -> Option<Change<'a>>,
        commit: &CommitMetadata<'_>,
    ) -> Result<Option<(Change<'a>, CommitOutcome)>, Error> {
        let Some((version, session)) = self.session_cache.get(key) else {
            return Ok(None);
        };
        let Some(change) = decide(&session) else {
            return Ok(None);
        };
        let landed = self.commit(key, (version, &session), &change, commit);
        Ok(landed.await?.map(|landed| (change, landed)))
    }

    /// Writes the rows of a new session. Returns `None`, with nothing written, if the session exists, a deleted session
    /// with this id reached a higher epoch than expected, the request is known, or the tenant is deleted.
    pub(super) async fn commit_new(
        &self,
        key: &SessionKey,
        empty: &Session,
        change: &Change<'_>,
        commit: &CommitMetadata<'_>,
    ) -> Result<Option<CommitOutcome>, Error> {
        match Box::pin(self.write(key, (None, empty), change, commit)).await {
            // A deleted session received this id concurrently.
            Err(Error::Duplicate(_)) => Ok(None),
            written => written,
        }
    }

    /// Writes a change of the session as it was read. Returns `None`, with nothing written, if the session was written
    /// concurrently or the idempotency key belongs to another request.
    pub(super) async fn commit(
        &self,
        key: &SessionKey,
        (version, session): (Version, &Session),
        change: &Change<'_>,
        commit: &CommitMetadata<'_>,
    ) -> Result<Option<CommitOutcome>, Error> {
        let written = Box::pin(self.write(key, (Some(version), session), change, commit)).await;
        if !matches!(written, Ok(Some(_))) {
            self.session_cache.forget(key);
        }
        written
    }

    async fn write(
        &self,
        key: &SessionKey,
        seen: (Option<Version>, &Session),
        change: &Change<'_>,
        commit: &CommitMetadata<'_>,
    ) -> Result<Option<CommitOutcome>, Error> {
        let following = change.next.as_deref();
        let has_chunks = self.chunks.has(key);
        let bound = CommitParams::new(key, seen, change, (*commit, has_chunks));
        let not_asked = CommitMetadata { request: None, ..*commit };
        let left = (Some(bound.new_version), &change.session);
        let next = following.map(|next| CommitParams::new(key, left, next, (not_asked, false)));
        let values: Vec<Values<'_>> =
            [Some(&bound), next.as_ref()].into_iter().flatten().map(CommitParams::values).collect();
        let arguments = values.iter().map(|values| values.arguments(&COMMIT)).collect::<Result<Vec<_>, _>>()?;
        let calls: Vec<_> = arguments.iter().map(|it| COMMIT.call(it)).collect();
        let asked = Instant::now();
        let answers = self.database.transact(&calls).await?;
        let mut rows = answers.iter().filter_map(|rows| rows.first());
        let Some((written, at)) = rows.next().map(written).transpose()?.flatten() else {
            return Ok(None);
        };
        let landed = CommitOutcome { last_seq: change.session.last_seq(), joined: joined(written)? };
        if change.creates {
            self.recent.forget(key);
        }
        if bound.drops_partial {
            self.chunks.forget(key);
        }
        let mut events = Vec::new();
        let known = seen.0.and_then(|version| self.session_cache.take_memory(key, version));
        let mut memory = bound.process_row(&mut events, known, (written, at, asked))?;
        let written = rows.next().unwrap_or(written);
        if let Some(next) = &next {
            memory = next.process_row(&mut events, memory, (written, at, asked))?;
        }
        self.recent.keep(key, events, Instant::now());
        let left = following.unwrap_or(change);
        if left.deletes {
            self.session_cache.forget(key);
        } else {
            let version = next.as_ref().map_or(bound.new_version, |next| next.new_version);
            let session = session_after(left, written, &landed)?;
            self.session_cache.keep(key, (version, session), memory);
        }
        Ok(Some(landed))
    }
}

/// The session after a commit, with the times that the database set.
fn session_after(change: &Change<'_>, row: &Row, landed: &CommitOutcome) -> Result<Session, Error> {
    let mut session = change.session.clone();
    session.wake_at = get(row, "tool_deadline")?;
    session.turn_deadline = get(row, "turn_deadline")?;
    if let (Some((_, expires_at)), Some(last)) = (landed.joined, session.queue.last_mut()) {
        last.expires_at = expires_at;
    }
    Ok(session)
}

/// A random version that no other write has.
fn next_version() -> Version {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    Version(random.cast_signed())
}

/// The function's result row and the time of the write. Returns `None` if nothing was written.
fn written(row: &Row) -> Result<Option<(&Row, Timestamp)>, Error> {
    Ok(get::<Option<Timestamp>>(row, "written_at")?.map(|at| (row, at)))
}

/// When a message joined the queue, and when it expires.
fn joined(row: &Row) -> Result<Option<(Timestamp, Option<Timestamp>)>, Error> {
    let at: Option<Timestamp> = get(row, "enqueued_at")?;
    let until = get(row, "expires_at")?;
    Ok(at.map(|at| (at, until)))
}

/// A change with everything that its commit writes.
struct CommitParams<'a> {
    key: &'a SessionKey,
    /// The version that was read. `None` for a new session.
    version: Option<Version>,
    new_version: Version,
    /// The session that was read.
    seen: &'a Session,
    change: &'a Change<'a>,
    commit: CommitMetadata<'a>,
    /// The result of the request.
    result: Option<Cow<'a, str>>,
    trace: Option<String>,
    known_at: Option<Timestamp>,
    /// Whether this replica wrote chunks of the session's text, which the change makes void.
    drops_partial: bool,
    encoded: EncodedRows<'a>,
}

impl<'a> CommitParams<'a> {
    fn new(
        key: &'a SessionKey,
        (version, seen): (Option<Version>, &'a Session),
        change: &'a Change<'a>,
        (commit, has_chunks): (CommitMetadata<'a>, bool),
    ) -> Self {
        Self {
            key,
            version,
            new_version: next_version(),
            seen,
            change,
            commit,
            result: commit.request.map(|it| it.result.text(change)),
            trace: change.begins.and_then(|_| Trace::current().stored()),
            known_at: change.creates.then(AdmittedAt::current).flatten(),
            drops_partial: change.drops_partial && has_chunks,
            encoded: EncodedRows::new(&key.tenant, change),
        }
    }

    /// The statements that have something to write, and all values.
    fn values(&self) -> Values<'_> {
        let mut values = columns::values(self.seen, self.change, &self.encoded);
        let CommitMetadata { id, estimator, request } = self.commit;
        let request_id = request.and_then(|it| it.request.request.as_ref());
        if request_id.is_some() {
            values.run(&["request"]);
        }
        if self.drops_partial {
            values.run(&["drop_partial"]);
        }
        values.set("tenant", self.key.tenant.as_str());
        values.set("session", self.key.session.as_str());
        values.set("version", self.version.map(|version| version.0));
        values.set("new_version", self.new_version.0);
        values.set("epoch", self.seen.fence.epoch);
        values.set("request_id", request_id.map(RequestId::as_str));
        values.set("request_hash", request.map_or("", |it| it.request.hash.as_str()));
        values.set("request_is_new", request.is_some_and(|it| it.is_new));
        values.set("led", self.result.as_deref());
        values.set("submission", id);
        values.set("estimator", estimator);
        values.set("trace", self.trace.as_deref());
        values.set("known_at", self.known_at);
        values
    }

    /// Processes the result row of this commit: adds its events, and returns the session's memory after it. `at` is
    /// when the database wrote, `asked` when the statement was sent.
    fn process_row(
        &self,
        events: &mut Vec<RecentEvent>,
        known: Option<SessionMemory>,
        (row, at, asked): (&Row, Timestamp, Instant),
    ) -> Result<Option<SessionMemory>, Error> {
        let Self { change, encoded, .. } = self;
        let totals = get::<Option<_>>(row, "totals")?.map(totals).transpose()?;
        let mut messages = committed_messages::messages(change, at, self.commit.estimator);
        let results = committed_messages::results(change, at, known.as_ref());
        let all = change.rows.map_or(0, |rows| rows.messages.len());
        let landing = AppliedCommit {
            change,
            as_of: Read { at, sent_at: asked },
            turn_deadline: get(row, "turn_deadline")?,
            estimator: self.commit.estimator,
            trace: self.trace.as_deref(),
            totals,
            messages: (messages.len() == all).then_some(messages.as_slice()),
            bytes: encoded.written_bytes(&messages),
            result_bytes: &|call| encoded.result_bytes(call),
        };
        let known = if change.creates {
            SessionMemory::of_new(&landing)
        } else {
            known.and_then(|known| known.after(&landing))
        };
        messages.extend(committed_messages::of_results(change, known.as_ref()));
        let refers = ReferencedContent { messages: &messages, results: &results };
        let stored = encoded.events.iter().map(|row| row.stored(change.turn_id.as_ref(), at, totals));
        recent_events::add(events, change, stored, refers, |id| encoded.page_bytes(id));
        Ok(known)
    }
}
