//! Answers to tool calls: what they are decided by is read, `session::answers` decides, and the change
//! is committed, unless the session was written meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Error, Store,
    commit::{Committed, Led, Races, Remember},
    grant::Grant,
    idempotency::{self, Request, remembered},
    known_call::KnownCall,
    own_sessions::Remembered,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    seen::{OPEN_CALLS, SESSION, SeenSession, another_number, open_call, seen_session},
    tool_call::{CALLS, known_calls},
};
use crate::{
    codec,
    model::{CallId, RequestId, Seq, SessionKey, command::Idempotency},
    session::{
        Version,
        answers::{self, Answers, Approval, Decided, NextStep, Seen},
        change::Answer,
    },
};

/// Answers to be written.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// Names it to the calls that it requests.
    pub id: &'a str,
    /// The answers that close a call.
    pub answers: &'a [Answer],
    /// The approvals.
    pub approvals: &'a [Approval],
    /// The calls to look at.
    pub named: &'a [CallId],
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// Which estimator counted.
    pub estimator: &'a str,
    /// Tokens of a message beside its parts.
    pub overhead: u32,
    /// What comes after the last answer.
    pub next: &'a NextStep,
}

/// The outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Submitted {
    /// The right to go on, when these answers were the last ones.
    pub grant: Option<Grant>,
    /// The calls whose answers were accepted now.
    pub accepted: BTreeSet<CallId>,
    /// The newest seq that these answers made; 0 when nothing was accepted.
    pub last_seq: Seq,
    /// What the same idempotency key came with first.
    pub first: Option<FirstSubmission>,
    /// The calls as they were decided about.
    pub calls: BTreeMap<CallId, KnownCall>,
    /// Calls that MCP servers are to run from now on, each in the outcome of one submission only.
    pub requested: BTreeSet<CallId>,
    /// Calls of the session that wait for the host now, in the order the model made them.
    pub pending: Vec<CallId>,
}

/// What answers are decided by, and what is said of those that do not count.
struct SeenCalls {
    version: Version,
    seen: Seen,
    /// The calls that were named.
    known: BTreeMap<CallId, KnownCall>,
    /// What the same idempotency key came with first. Of calls that are only remembered it is not known.
    first: Option<FirstSubmission>,
    /// They are as this replica has left them, and may have changed since.
    are_remembered: bool,
}

/// The first submission under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSubmission {
    /// Its hash.
    pub hash: String,
    /// The calls whose answers were accepted then.
    pub accepted: BTreeSet<CallId>,
}

impl Store {
    /// Writes answers. What does not wait for such an answer, or belongs to a turn that is being
    /// cancelled, is left alone.
    pub async fn submit(
        &self,
        key: &SessionKey,
        submission: &Submission<'_>,
    ) -> Result<Submitted, Error> {
        let mut races = Races::over("answers to tool calls");
        let mut remembered = self.remembered_calls(key, submission);
        loop {
            let seen = match remembered.take() {
                Some(seen) => Some(seen),
                None => self.seen_calls(key, submission).await?,
            };
            let Some(seen) = seen else {
                return Ok(Submitted::default());
            };
            if let Some(submitted) = self.try_submit(key, submission, seen).await? {
                return Ok(submitted);
            }
            races.lost()?;
        }
    }

    /// The calls as this replica has left them. `None`: they are not known here, or do not all wait for results.
    fn remembered_calls(&self, key: &SessionKey, submission: &Submission<'_>) -> Option<SeenCalls> {
        let Remembered {
            version,
            session,
            memory,
        } = self.own.remembered(key)?;
        let known = memory.waiting(&session, submission.named)?.calls;
        Some(SeenCalls {
            version,
            seen: Seen {
                open: memory.open_calls(&session)?,
                now: memory.now(),
                session,
            },
            known,
            first: None,
            are_remembered: true,
        })
    }

    /// `None`: the session was written meanwhile, or calls that are only remembered do not take all answers.
    async fn try_submit(
        &self,
        key: &SessionKey,
        submission: &Submission<'_>,
        seen: SeenCalls,
    ) -> Result<Option<Submitted>, Error> {
        let idempotency = submission.idempotency;
        let answers = Answers {
            closing: submission.answers,
            approvals: submission.approvals,
            overhead: submission.overhead,
            next: submission.next,
            replica: &self.replica,
            lease: self.lease,
        };
        let mut submitted = Submitted {
            first: seen.first,
            calls: seen.known,
            ..Submitted::default()
        };
        let first = submitted.first.as_ref();
        if first.is_some_and(|first| first.hash != idempotency.hash) {
            return Ok(Some(submitted));
        }
        let Decided {
            change,
            accepted,
            to_run,
            resumes,
            pending,
        } = answers::apply(&seen.seen, &answers);
        submitted.pending = pending;
        if seen.are_remembered && accepted.len() < submission.named.len() {
            return Ok(None);
        }
        let Some(change) = change else {
            if submitted.first.is_none() {
                let known = self.remember_request(key, idempotency).await?;
                submitted.first = known
                    .map(|known| first_submission(known, idempotency))
                    .transpose()?;
            }
            return Ok(Some(submitted));
        };
        submitted.accepted = accepted.into_iter().collect();
        let led = submitted.led();
        let commit = Committed {
            id: submission.id,
            estimator: submission.estimator,
            request: Some(Remember {
                request: idempotency,
                led: Led::To(&led),
                is_new: seen.are_remembered,
            }),
        };
        let before = (seen.version, &seen.seen.session);
        if self.commit(key, before, &change, &commit).await?.is_none() {
            return Ok(None);
        }
        submitted.last_seq = change.session.last_seq();
        submitted.requested = to_run;
        submitted.grant = Grant::of(&change.session).filter(|_| resumes);
        Ok(Some(submitted))
    }

    async fn seen_calls(
        &self,
        key: &SessionKey,
        submission: &Submission<'_>,
    ) -> Result<Option<SeenCalls>, Error> {
        let key = Key::from(key);
        let named: Vec<&str> = submission.named.iter().map(CallId::as_str).collect();
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
        ];
        let Idempotency { request, hash } = submission.idempotency;
        let request = request.as_ref().map(RequestId::as_str);
        let known = Request::new(&key, request, hash, "");
        let queries = [
            SESSION.query(&values)?,
            OPEN_CALLS.query(&values)?,
            Query::new(CALLS, vec![&key.tenant as Param<'_>, &key.session, &named]),
            known.read(),
        ];
        let answers = self.database.read_together(&queries).await?;
        let [session, open, calls, known_request] = answers.as_slice() else {
            return Err(another_number());
        };
        let Some(row) = session.first() else {
            return Ok(None);
        };
        let SeenSession {
            version,
            session,
            now,
        } = seen_session(row)?;
        Ok(Some(SeenCalls {
            version,
            seen: Seen {
                session,
                open: open.iter().map(open_call).collect::<Result<_, _>>()?,
                now,
            },
            known: known_calls(calls)?,
            first: known_request
                .first()
                .map(|row| first_submission(remembered(row)?, submission.idempotency))
                .transpose()?,
            are_remembered: false,
        }))
    }

    /// The calls of MCP servers that a submission requested, and that wait for their results.
    pub async fn requested_by(
        &self,
        key: &SessionKey,
        submission: &str,
    ) -> Result<BTreeSet<CallId>, Error> {
        const SQL: &str = "-- store::answers::requested_by
            select c.call_id from tool_calls c
             where c.tenant_id = $1 and c.session_id = $2 and c.requested_by = $3 and c.status = 0 and c.executor = 2";
        let key = Key::from(key);
        let rows = self
            .database
            .read(SQL, &[&key.tenant, &key.session, &submission])
            .await?;
        rows.iter()
            .map(|row| Ok(CallId::new(get::<String>(row, "call_id")?)))
            .collect()
    }
}

impl Submitted {
    /// All calls whose answers were accepted under its key, as they are remembered.
    fn led(&self) -> String {
        let before = self.first.iter().flat_map(|first| &first.accepted);
        codec::call::ids_to_text(before.chain(&self.accepted))
    }
}

/// What is remembered. Under another hash it may be the work of another RPC, whose result is no
/// list of calls.
fn first_submission(
    idempotency::Remembered { hash, result }: idempotency::Remembered,
    idempotency: &Idempotency,
) -> Result<FirstSubmission, Error> {
    let accepted = if hash == idempotency.hash && !result.is_empty() {
        codec::call::ids_from_text(&result)?
    } else {
        BTreeSet::new()
    };
    Ok(FirstSubmission { hash, accepted })
}
