//! Answers to tool calls: reads what the decision needs, lets `session::answers` decide, and commits the change unless
//! the session was written concurrently.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Error, Store,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult, RequestToStore},
    grant::Grant,
    idempotency::{READ, StoredRequest, stored_request},
    key::Key,
    known_call::StoredCall,
    row::get,
    seen::{OPEN_CALLS, SESSION, SessionSnapshot, another_number, open_call, seen_session},
    session_cache::CachedSession,
    tool_call::{CALLS, known_calls},
};
use crate::{
    codec,
    model::{CallId, RequestId, Seq, SessionKey, command::Idempotency},
    session::{
        Version,
        answers::{self, AnswerSnapshot, Answers, AnswersOutcome, Approval, NextStep},
        change::Answer,
    },
};

/// Answers to write.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// Stored in the calls that this submission requests, so that they can be found by it.
    pub id: &'a str,
    /// Answers that close a call.
    pub answers: &'a [Answer],
    pub approvals: &'a [Approval],
    /// The calls that the submission names.
    pub named: &'a [CallId],
    pub idempotency: &'a Idempotency,
    /// The estimator that counted the tokens.
    pub estimator: &'a str,
    /// Tokens of a message in addition to its parts.
    pub overhead: u32,
    /// The step that follows the last answer.
    pub next: &'a NextStep,
}

/// The outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubmissionOutcome {
    /// The grant to continue the turn, if these were the last answers.
    pub grant: Option<Grant>,
    /// Calls whose answers this submission had accepted.
    pub accepted: BTreeSet<CallId>,
    /// The newest seq that this submission wrote; 0 if nothing was accepted.
    pub last_seq: Seq,
    /// The first submission with the same idempotency key.
    pub first: Option<FirstSubmission>,
    /// The calls as they were when the decision was made.
    pub calls: BTreeMap<CallId, StoredCall>,
    /// Calls that MCP servers must run now. Each call is returned by one submission only.
    pub requested: BTreeSet<CallId>,
    /// Calls of the session that now wait for the host, in the order in which the model made them.
    pub pending: Vec<CallId>,
}

/// The state that the decision is based on, and details of the calls for the outcome of rejected answers.
struct SeenCalls {
    version: Version,
    seen: AnswerSnapshot,
    /// The named calls.
    known: BTreeMap<CallId, StoredCall>,
    /// The first submission with the same idempotency key. Not known if `is_from_cache`.
    first: Option<FirstSubmission>,
    /// Whether the calls come from this replica's memory and may have changed since.
    is_from_cache: bool,
}

/// The first submission with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSubmission {
    /// Hash of the request.
    pub hash: String,
    /// The calls whose answers it had accepted.
    pub accepted: BTreeSet<CallId>,
}

impl Store {
    /// Writes answers. Calls that do not wait for such an answer, or whose turn is being cancelled, are left unchanged.
    pub async fn submit(&self, key: &SessionKey, submission: &Submission<'_>) -> Result<SubmissionOutcome, Error> {
        let mut remembered = self.remembered_calls(key, submission);
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let seen = match remembered.take() {
                Some(seen) => Some(seen),
                None => self.seen_calls(key, submission).await?,
            };
            let Some(seen) = seen else {
                return Ok(SubmissionOutcome::default());
            };
            if let Some(submitted) = self.try_submit(key, submission, seen).await? {
                return Ok(submitted);
            }
        }
        Err(Error::Conflict("concurrent writes prevented the submission of tool results".to_owned()))
    }

    /// The calls from this replica's memory. Returns `None` if they are not in memory or do not all wait for results.
    fn remembered_calls(&self, key: &SessionKey, submission: &Submission<'_>) -> Option<SeenCalls> {
        let CachedSession { version, session, memory } = self.session_cache.remembered(key)?;
        let known = memory.waiting(&session, submission.named)?.calls;
        Some(SeenCalls {
            version,
            seen: AnswerSnapshot { open: memory.open_calls(&session)?, now: memory.now(), session },
            known,
            first: None,
            is_from_cache: true,
        })
    }

    /// Returns `None` if the session was written concurrently, or if the calls come from memory and not all answers are
    /// accepted.
    async fn try_submit(
        &self,
        key: &SessionKey,
        submission: &Submission<'_>,
        seen: SeenCalls,
    ) -> Result<Option<SubmissionOutcome>, Error> {
        let idempotency = submission.idempotency;
        let answers = Answers {
            closing: submission.answers,
            approvals: submission.approvals,
            overhead: submission.overhead,
            next: submission.next,
            replica: &self.replica,
            lease: self.lease_ttl,
        };
        let mut submitted = SubmissionOutcome { first: seen.first, calls: seen.known, ..SubmissionOutcome::default() };
        let first = submitted.first.as_ref();
        if first.is_some_and(|first| first.hash != idempotency.hash) {
            return Ok(Some(submitted));
        }
        let AnswersOutcome { change, accepted, to_run, resumes, pending } = answers::apply(&seen.seen, &answers);
        submitted.pending = pending;
        if seen.is_from_cache && accepted.len() < submission.named.len() {
            return Ok(None);
        }
        let Some(change) = change else {
            if submitted.first.is_none() {
                let known = self.store_request_result(key, idempotency, "").await?;
                submitted.first = known.map(|known| first_submission(known, idempotency)).transpose()?;
            }
            return Ok(Some(submitted));
        };
        submitted.accepted = accepted.into_iter().collect();
        let led = submitted.result_text();
        let commit = CommitMetadata {
            id: submission.id,
            estimator: submission.estimator,
            request: Some(RequestToStore {
                request: idempotency,
                result: RequestResult::Text(&led),
                is_new: seen.is_from_cache,
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

    async fn seen_calls(&self, key: &SessionKey, submission: &Submission<'_>) -> Result<Option<SeenCalls>, Error> {
        let key = Key::from(key);
        let named: Vec<&str> = submission.named.iter().map(CallId::as_str).collect();
        let request = submission.idempotency.request.as_ref().map(RequestId::as_str);
        let queries = [
            key.named(&SESSION, &[])?,
            key.named(&OPEN_CALLS, &[])?,
            key.named(&CALLS, &[("calls", &named)])?,
            key.query(READ, &[&request]),
        ];
        let answers = self.database.read_together(&queries).await?;
        let [session, open, calls, known_request] = answers.as_slice() else {
            return Err(another_number());
        };
        let Some(row) = session.first() else {
            return Ok(None);
        };
        let SessionSnapshot { version, session, now } = seen_session(row)?;
        Ok(Some(SeenCalls {
            version,
            seen: AnswerSnapshot { session, open: open.iter().map(open_call).collect::<Result<_, _>>()?, now },
            known: known_calls(calls)?,
            first: known_request
                .first()
                .map(|row| first_submission(stored_request(row)?, submission.idempotency))
                .transpose()?,
            is_from_cache: false,
        }))
    }

    /// Returns the calls to MCP servers that a submission requested and that still wait for their results.
    pub async fn requested_by(&self, key: &SessionKey, submission: &str) -> Result<BTreeSet<CallId>, Error> {
        const SQL: &str = "-- store::answers::requested_by
            select c.call_id from tool_calls c
             where c.tenant_id = $1 and c.session_id = $2 and c.requested_by = $3 and c.status = 0 and c.executor = 2";
        let rows = self.database.read_in(key, SQL, &[&submission]).await?;
        rows.iter().map(|row| Ok(CallId::new(get::<String>(row, "call_id")?))).collect()
    }
}

impl SubmissionOutcome {
    /// All calls whose answers were accepted under its idempotency key, as text to store.
    fn result_text(&self) -> String {
        let before = self.first.iter().flat_map(|first| &first.accepted);
        codec::call::ids_to_text(before.chain(&self.accepted))
    }
}

/// Decodes a stored result. With a different hash it may be the result of another RPC and not a list of calls.
fn first_submission(
    StoredRequest { hash, result }: StoredRequest,
    idempotency: &Idempotency,
) -> Result<FirstSubmission, Error> {
    let accepted = if hash == idempotency.hash && !result.is_empty() {
        codec::call::ids_from_text(&result)?
    } else {
        BTreeSet::new()
    };
    Ok(FirstSubmission { hash, accepted })
}
