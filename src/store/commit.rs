//! The commit of a change of a session: its row, compared with the version that was seen, and the rows
//! that come with it, in one transaction and one round trip.

use std::{borrow::Cow, sync::LazyLock, time::Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    AdmittedAt, Error, Store,
    admitted::Read,
    event::totals,
    named_parameters::{self, Named},
    pipeline::{Param, Query},
    recent_events::RecentEvent,
    row::get,
    rows::Key,
    seen::SeenSession,
    session_memory::{Landing, SessionMemory},
};
use crate::{
    model::{RequestId, Seq, SessionKey, command::Idempotency},
    session::{Session, Version, change::Change},
    telemetry::Trace,
};

mod columns;
mod committed_messages;
mod compaction_columns;
mod config_columns;
mod event_columns;
mod fork_columns;
mod import_columns;
mod mark_columns;
mod queue_columns;
mod recent_events;

use columns::Columns;
use recent_events::Refers;

/// How often a change is decided anew because the session was written meanwhile. Each time another
/// write has landed, and few write a session at a time.
const LOST_RACES: u32 = 100;

/// A change is decided anew whenever its commit lost a race.
pub(super) struct Races {
    over: &'static str,
    lost: u32,
}

impl Races {
    /// None yet, over this.
    pub(super) fn over(over: &'static str) -> Self {
        Self { over, lost: 0 }
    }

    /// One more. Fails after too many.
    pub(super) fn lost(&mut self) -> Result<(), Error> {
        self.lost += 1;
        if self.lost < LOST_RACES {
            Ok(())
        } else {
            Err(Error::Conflict(self.over.to_owned()))
        }
    }
}

/// What a commit carries beside its change.
#[derive(Debug, Clone, Copy, Default)]
pub struct Committed<'a> {
    /// Names it to the calls that it hands out.
    pub id: &'a str,
    /// Which estimator counted.
    pub estimator: &'a str,
    /// The request that asked for it.
    pub request: Option<Remember<'a>>,
}

/// A request that is remembered with a commit.
#[derive(Debug, Clone, Copy)]
pub struct Remember<'a> {
    /// Its key.
    pub request: &'a Idempotency,
    /// What it has led to by now.
    pub led: Led<'a>,
    /// Its key must not be known yet.
    pub is_new: bool,
}

/// What a request led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Led<'a> {
    /// This.
    To(&'a str),
    /// The newest seq of the change, and this behind it.
    ToSeq(&'a str),
}

impl<'a> Led<'a> {
    fn text(self, change: &Change<'_>) -> Cow<'a, str> {
        match self {
            Self::To(text) => Cow::Borrowed(text),
            Self::ToSeq(behind) => Cow::Owned(format!("{}{behind}", change.session.last_seq())),
        }
    }
}

/// What a commit left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landed {
    /// The newest seq of its change, without that which begins right after it.
    pub(super) last_seq: Seq,
    /// When the message came that joined the queue, and when it is given up.
    pub(super) joined: Option<(Timestamp, Option<Timestamp>)>,
}

const DROP_PARTIAL: &str = "store::commit::drop_partial";
const NEW_RUN: &str = "store::commit::new_run";
const QUEUED: &str = "store::commit::queued";
const REQUEST: &str = "store::commit::request";
const SESSION: &str = "store::commit::session";
const TURN: &str = "store::commit::turn";

/// The first one compares the version, or finds that there is no such session.
pub(super) static COMMIT: LazyLock<Vec<Named>> = named![
    "sql/commit/session.sql",
    "sql/commit/new_run.sql",
    "sql/commit/new_session.sql",
    "sql/commit/request.sql",
    "sql/commit/events.sql",
    "sql/commit/messages.sql",
    "sql/commit/parts.sql",
    "sql/commit/media.sql",
    "sql/commit/close_calls.sql",
    "sql/commit/ask_calls.sql",
    "sql/commit/new_calls.sql",
    "sql/commit/turn.sql",
    "sql/commit/new_turn.sql",
    "sql/commit/queued.sql",
    "sql/commit/leave_queue.sql",
    "sql/commit/hurry.sql",
    "sql/commit/calm.sql",
    "sql/commit/copy_messages.sql",
    "sql/commit/copy_parts.sql",
    "sql/commit/copy_prunes.sql",
    "sql/commit/copy_blobs.sql",
    "sql/commit/copy_calls.sql",
    "sql/commit/copy_compactions.sql",
    "sql/commit/import_calls.sql",
    "sql/commit/import_answers.sql",
    "sql/commit/spend.sql",
    "sql/commit/message_info.sql",
    "sql/commit/drop_partial.sql",
    "sql/commit/void.sql",
    "sql/commit/prune.sql",
    "sql/commit/past_prune.sql",
    "sql/commit/restore.sql",
    "sql/commit/fail_compaction.sql",
    "sql/commit/begin_compaction.sql",
    "sql/commit/move_compaction.sql",
    "sql/commit/apply_compaction.sql",
    "sql/commit/revert_compactions.sql",
    "sql/commit/toolset.sql",
    "sql/commit/revision.sql",
    "sql/commit/session_used.sql",
    "sql/commit/new_activity.sql",
    "sql/commit/gone.sql",
    "sql/commit/unlist.sql",
    "sql/commit/last_epoch.sql",
];

impl Store {
    /// Reads a session, decides and commits, again and again until nobody wrote the session in between.
    /// Gives the session as it became. `None`: there is none, or `decide` changes nothing.
    pub(super) async fn change<'a>(
        &self,
        key: &SessionKey,
        decide: impl Fn(&SeenSession) -> Option<Change<'a>>,
        commit: &Committed<'_>,
    ) -> Result<Option<Session>, Error> {
        let mut races = Races::over("a session");
        loop {
            let Some(seen) = self.read_session(key).await? else {
                return Ok(None);
            };
            let Some(change) = decide(&seen) else {
                return Ok(None);
            };
            let seen = (seen.version, &seen.session);
            if self.commit(key, seen, &change, commit).await?.is_some() {
                return Ok(Some(change.session));
            }
            races.lost()?;
        }
    }

    /// Reads a session, decides and commits for a request that is new. `None`: there is no session, the request
    /// is known, or `decide` changes nothing.
    pub(super) async fn change_for<'a>(
        &self,
        key: &SessionKey,
        (request, led): (&Idempotency, Led<'_>),
        estimator: &str,
        decide: impl Fn(&Session) -> Option<Change<'a>>,
    ) -> Result<Option<Session>, Error> {
        let commit = Committed {
            estimator,
            request: Some(Remember {
                request,
                led,
                is_new: true,
            }),
            ..Committed::default()
        };
        let mut races = Races::over("a session");
        loop {
            let (Some(seen), None) = self.read_session_and_request(key, request).await? else {
                return Ok(None);
            };
            let Some(change) = decide(&seen.session) else {
                return Ok(None);
            };
            let seen = (seen.version, &seen.session);
            if self.commit(key, seen, &change, &commit).await?.is_some() {
                return Ok(Some(change.session));
            }
            races.lost()?;
        }
    }

    /// Decides by the session as this replica left it, and commits. `None`: it is not known here, `decide`
    /// changes nothing, or the session was written since. Nothing was written then.
    pub(super) async fn commit_known<'a>(
        &self,
        key: &SessionKey,
        decide: impl FnOnce(&Session) -> Option<Change<'a>>,
        commit: &Committed<'_>,
    ) -> Result<Option<(Change<'a>, Landed)>, Error> {
        let Some((version, session)) = self.own.get(key) else {
            return Ok(None);
        };
        let Some(change) = decide(&session) else {
            return Ok(None);
        };
        let landed = self.commit(key, (version, &session), &change, commit);
        Ok(landed.await?.map(|landed| (change, landed)))
    }

    /// Writes what makes a session. `None`: it exists, or a deleted one with its id got further than was reckoned
    /// with; the request is known, or the tenant is no more. Nothing was written then.
    pub(super) async fn commit_new(
        &self,
        key: &SessionKey,
        empty: &Session,
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<Option<Landed>, Error> {
        match Box::pin(self.write(key, (None, empty), change, commit)).await {
            // A deleted session got this id at the same time.
            Err(Error::Duplicate(_)) => Ok(None),
            written => written,
        }
    }

    /// Writes a change of the session as it was seen. `None`: the session was written meanwhile, or
    /// another request has this one's key. Nothing was written then.
    pub(super) async fn commit(
        &self,
        key: &SessionKey,
        seen: (Version, &Session),
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<Option<Landed>, Error> {
        let (version, session) = seen;
        let seen = (Some(version), session);
        let written = Box::pin(self.write(key, seen, change, commit)).await;
        if !matches!(written, Ok(Some(_))) {
            self.own.forget(key);
        }
        written
    }

    async fn write(
        &self,
        key: &SessionKey,
        seen: (Option<Version>, &Session),
        change: &Change<'_>,
        commit: &Committed<'_>,
    ) -> Result<Option<Landed>, Error> {
        let following = change.next.as_deref();
        let has_chunks = self.chunks.has(key);
        let bound = Bound::new(key, seen, change, (*commit, has_chunks));
        let not_asked = Committed {
            request: None,
            ..*commit
        };
        let left = (Some(bound.becomes), &change.session);
        let next = following.map(|next| Bound::new(key, left, next, (not_asked, false)));
        let mut queries = bound.queries()?;
        let own = queries.len();
        if let Some(next) = &next {
            queries.extend(next.queries()?);
        }
        let asked = Instant::now();
        let answers = self.database.transact(&queries).await?;
        let (own_queries, next_queries) = queries.split_at(own);
        let (answers, next_answers) = answers.split_at(own.min(answers.len()));
        let row = |name| row_of(name, own_queries, answers);
        let first = if change.creates { NEW_RUN } else { SESSION };
        let Some(written) = row(first) else {
            return Ok(None);
        };
        let landed = Landed {
            last_seq: change.session.last_seq(),
            joined: row(QUEUED).map(joined).transpose()?,
        };
        if change.creates {
            self.recent.forget(key);
        }
        if bound.drops_partial {
            self.chunks.forget(key);
        }
        let mut events = Vec::new();
        let known = seen
            .0
            .and_then(|version| self.own.take_memory(key, version));
        let answer = (written, row(TURN), asked);
        let mut memory = bound.take_in(&mut events, known, change, answer)?;
        let written = row_of(SESSION, next_queries, next_answers).unwrap_or(written);
        if let Some((bound, change)) = next.as_ref().zip(following) {
            memory = bound.take_in(&mut events, memory, change, (written, None, asked))?;
        }
        self.recent.keep(key, events, Instant::now());
        let left = following.unwrap_or(change);
        if left.deletes {
            self.own.forget(key);
        } else {
            let version = next.as_ref().map_or(bound.becomes, |next| next.becomes);
            let session = as_left(left, written, &landed)?;
            self.own.keep(key, (version, session), memory);
        }
        Ok(Some(landed))
    }
}

/// A session as a commit left it, with the times that the database gave it.
fn as_left(change: &Change<'_>, row: &Row, landed: &Landed) -> Result<Session, Error> {
    let mut session = change.session.clone();
    session.wake_at = get(row, "tool_deadline")?;
    session.turn_deadline = get(row, "turn_deadline")?;
    if let (Some((_, expires_at)), Some(last)) = (landed.joined, session.queue.last_mut()) {
        last.expires_at = expires_at;
    }
    Ok(session)
}

/// A version that no write has had.
fn next_version() -> Version {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    Version(random.cast_signed())
}

/// The row that a statement of that name gave.
fn row_of<'r>(name: &str, queries: &[Query<'_>], answers: &'r [Vec<Row>]) -> Option<&'r Row> {
    let mut both = queries.iter().zip(answers);
    let (_, rows) = both.find(|(query, _)| query.is_named(name))?;
    rows.first()
}

fn joined(row: &Row) -> Result<(Timestamp, Option<Timestamp>), Error> {
    Ok((get(row, "enqueued_at")?, get(row, "expires_at")?))
}

/// A change as the parameters of its commit.
struct Bound<'a> {
    key: Key,
    /// The version that was seen. None: the session is new.
    version: Option<i64>,
    becomes: Version,
    /// The epoch that was seen.
    last_epoch: i64,
    commit: Committed<'a>,
    request: Option<&'a str>,
    hash: &'a str,
    led: Option<Cow<'a, str>>,
    is_new: bool,
    trace: Option<String>,
    known_at: Option<Timestamp>,
    /// This replica has written chunks of the session's text, which are void with the change.
    drops_partial: bool,
    columns: Columns<'a>,
}

impl<'a> Bound<'a> {
    fn new(
        key: &SessionKey,
        (version, seen): (Option<Version>, &'a Session),
        change: &'a Change<'_>,
        (commit, has_chunks): (Committed<'a>, bool),
    ) -> Self {
        let asked = commit.request;
        let trace = change.begins.and_then(|_| Trace::current().stored());
        Self {
            key: key.into(),
            version: version.map(|version| version.0),
            becomes: next_version(),
            last_epoch: seen.fence.epoch,
            commit,
            request: asked.and_then(|it| it.request.request.as_ref().map(RequestId::as_str)),
            hash: asked.map_or("", |it| it.request.hash.as_str()),
            led: asked.map(|it| it.led.text(change)),
            is_new: asked.is_some_and(|it| it.is_new),
            trace,
            known_at: change.creates.then(AdmittedAt::current).flatten(),
            drops_partial: change.drops_partial && has_chunks,
            columns: Columns::new(&key.tenant, seen, change),
        }
    }

    /// Takes in what its commit answered, which was asked then: the rows of the session and of the turn. Adds its events,
    /// and makes what is remembered of the session what it is now.
    fn take_in(
        &self,
        events: &mut Vec<RecentEvent>,
        known: Option<SessionMemory>,
        change: &Change<'_>,
        (session, turn, asked): (&Row, Option<&Row>, Instant),
    ) -> Result<Option<SessionMemory>, Error> {
        let at = get(session, "written_at")?;
        let totals = turn.map(|row| totals(get(row, "totals")?)).transpose()?;
        let mut messages = committed_messages::messages(change, at, self.commit.estimator);
        let results = committed_messages::results(change, at, known.as_ref());
        let columns = &self.columns;
        let all = change.rows.map_or(0, |rows| rows.messages.len());
        let landing = Landing {
            change,
            as_of: Read { at, asked },
            turn_deadline: get(session, "turn_deadline")?,
            estimator: self.commit.estimator,
            trace: self.trace.as_deref(),
            totals,
            messages: (messages.len() == all).then_some(messages.as_slice()),
            bytes: columns.written_bytes(&messages),
            result_bytes: &|call| columns.result_bytes(call),
        };
        let known = if change.creates {
            SessionMemory::of_new(&landing)
        } else {
            known.and_then(|known| known.after(&landing))
        };
        messages.extend(committed_messages::of_results(change, known.as_ref()));
        let refers = Refers {
            messages: &messages,
            results: &results,
        };
        columns.add_events(events, change, refers, (at, totals));
        Ok(known)
    }

    /// The statements that have something to write.
    fn queries(&self) -> Result<Vec<Query<'_>>, Error> {
        let mut values = vec![
            ("tenant", &self.key.tenant as Param<'_>),
            ("session", &self.key.session),
            ("version", &self.version),
            ("new_version", &self.becomes.0),
            ("epoch", &self.last_epoch),
            ("request_id", &self.request),
            ("request_hash", &self.hash),
            ("led", &self.led),
            ("request_is_new", &self.is_new),
            ("submission", &self.commit.id),
            ("estimator", &self.commit.estimator),
            ("trace", &self.trace),
            ("known_at", &self.known_at),
        ];
        values.extend(self.columns.values());
        let is_needed = |name: &str| match name {
            REQUEST => self.request.is_some(),
            DROP_PARTIAL => self.drops_partial,
            name => self.columns.need(name),
        };
        Ok(named_parameters::queries(&COMMIT, &values, is_needed)?)
    }
}
