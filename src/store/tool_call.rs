//! Tool calls: what is open, and answers to it. Whoever answers the last open call of a turn that nobody owns becomes its owner.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    Error, Store,
    admission::Grant,
    lease::{Request, lock_run},
    pipeline::{Param, Query},
    row::{count, get},
    rows::{Key, part_row, signed},
};
use crate::model::{
    BlobId, CallId, Fence, Part, RequestId, Seq, SessionKey, ToolCall, TurnId, command::Idempotency, event::PendingCall,
};

/// A tool call as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCall {
    /// The turn that made it.
    pub turn: TurnId,
    /// The step that made it.
    pub step: u32,
    /// The tool.
    pub name: String,
    /// Whether it waits for a result.
    pub open: bool,
    /// Its deadline passed.
    pub overdue: bool,
    /// The request that answered it.
    pub closed_by: Option<RequestId>,
    /// The hash of its answer.
    pub answer: Option<String>,
}

/// An answer, cleaned and cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The call.
    pub call: CallId,
    /// The tool result.
    pub part: Part,
    /// Its tokens.
    pub tokens: u32,
    /// The hash of the answer as it was sent.
    pub hash: String,
    /// The whole output, when it was cut.
    pub full_output: Option<BlobId>,
}

/// What comes after the last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// The encoded `step_started`; none: the turn takes no further step.
    pub started: Option<Vec<u8>>,
    /// Tokens of the prompt outside of the transcript.
    pub outside: u32,
}

/// Answers to be written.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// The answers.
    pub answers: &'a [Answer],
    /// Only those whose call is past its deadline: nobody answered.
    pub overdue_only: bool,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// Which estimator counted.
    pub estimator: &'a str,
    /// Tokens of a message beside its parts.
    pub overhead: u32,
    /// What comes after the last answer.
    pub next: &'a NextStep,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The right to go on, when these answers were the last ones.
    pub grant: Option<Grant>,
    /// The calls whose answers were accepted.
    pub accepted: BTreeSet<CallId>,
    /// The newest seq that these answers made; 0 when nothing was accepted.
    pub last_seq: Seq,
    /// The hash that the idempotency key came with first.
    pub hash: Option<String>,
    /// The calls as they are now.
    pub calls: BTreeMap<CallId, KnownCall>,
    /// Calls of the session that still wait, in the order the model made them.
    pub pending: Vec<CallId>,
}

const ANSWERED: i16 = 3;
const TIMED_OUT: i16 = 4;

/// All calls that there ever were.
pub(super) const CALL_IDS: &str = "-- store::tool_call::call_ids
    select c.call_id from tool_calls c where c.tenant_id = $1 and c.session_id = $2";

/// The calls by id, with what an answer needs to know.
pub(super) const CALLS: &str = "-- store::tool_call::calls
    select c.call_id, c.turn_id, c.step, c.tool_name, c.status < 3 as open, (c.status < 3 and c.deadline < now()) is true as overdue,
           c.closed_by, c.answer_hash
      from tool_calls c where c.tenant_id = $1 and c.session_id = $2 and c.call_id = any($3)";

/// The calls that wait, in the order the model made them.
pub(super) const OPEN: &str = "-- store::tool_call::open
    select c.call_id, c.turn_id, c.tool_name, c.deadline, (c.deadline < now()) is true as overdue, p.body
      from session_run r
      join tool_calls c on c.tenant_id = $1 and c.session_id = $2 and c.turn_id = r.turn_id and c.status < 3
      join parts p on p.tenant_id = $1 and p.session_id = $2 and p.message_id = c.message_id and p.idx = c.part_idx
     where r.tenant_id = $1 and r.session_id = $2 order by c.ord";

pub(super) const SUBMIT: &str = include_str!("sql/submit.sql");

impl Store {
    /// The ids of all calls that the session ever had, those that the model no longer sees too.
    pub async fn call_ids(&self, key: &SessionKey) -> Result<Vec<CallId>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(CALL_IDS, &[&key.tenant, &key.session]).await?;
        rows.iter().map(|row| Ok(CallId::new(get::<String>(row, "call_id")?))).collect()
    }

    /// What is known of these calls; those the session never had are missing.
    pub async fn calls(&self, key: &SessionKey, calls: &[CallId]) -> Result<BTreeMap<CallId, KnownCall>, Error> {
        let (key, ids) = (Key::from(key), ids(calls.iter()));
        known_calls(&self.database.read(CALLS, &[&key.tenant, &key.session, &ids]).await?)
    }

    /// The calls of the live turn that wait for results, in order, each with whether its time is up.
    pub async fn open_calls(&self, key: &SessionKey) -> Result<Vec<(PendingCall, bool)>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(OPEN, &[&key.tenant, &key.session]).await?;
        rows.iter()
            .map(|row| {
                let call = ToolCall {
                    id: CallId::new(get::<String>(row, "call_id")?),
                    name: get(row, "tool_name")?,
                    arguments: get(row, "body")?,
                };
                let deadline: Option<Timestamp> = get(row, "deadline")?;
                Ok((PendingCall { call, deadline: deadline.unwrap_or_default() }, get(row, "overdue")?))
            })
            .collect()
    }

    /// Writes answers. What is no longer open, or belongs to a turn that is being cancelled, is left alone.
    pub async fn submit(&self, key: &SessionKey, submission: &Submission<'_>) -> Result<Submitted, Error> {
        let (key, lease) = (Key::from(key), self.lease.as_secs_f64());
        let columns = AnswerColumns::from(submission.answers);
        let status = if submission.overdue_only { TIMED_OUT } else { ANSWERED };
        let request = submission.idempotency.request.as_ref().map(RequestId::as_str);
        let (overhead, outside) = (signed(submission.overhead), i64::from(submission.next.outside));
        let mut params: Vec<Param<'_>> = vec![&key.tenant, &key.session];
        params.extend(columns.params());
        params.extend([
            &submission.overdue_only as Param<'_>,
            &status,
            &request,
            &submission.idempotency.hash,
            &self.replica,
        ]);
        params.extend([&lease as Param<'_>, &submission.estimator, &overhead, &submission.next.started, &outside]);
        let remembered = Request::new(&key, request, &submission.idempotency.hash, "");
        let queries = [
            lock_run(&key),
            Query::new(SUBMIT, params),
            remembered.insert(),
            remembered.read(),
            Query::new(CALLS, vec![&key.tenant as Param<'_>, &key.session, &columns.calls]),
            Query::new(OPEN, vec![&key.tenant as Param<'_>, &key.session]),
        ];
        let answers = self.database.transact(&queries).await?;
        submitted(&answers)
    }
}

struct AnswerColumns<'a> {
    calls: Vec<&'a str>,
    outcomes: Vec<Option<i16>>,
    bodies: Vec<String>,
    rests: Vec<Option<Vec<u8>>>,
    tokens: Vec<i32>,
    hashes: Vec<&'a str>,
    blobs: Vec<Option<&'a str>>,
}

impl<'a> From<&'a [Answer]> for AnswerColumns<'a> {
    fn from(answers: &'a [Answer]) -> Self {
        let rows: Vec<_> = answers.iter().map(|answer| part_row(&answer.part)).collect();
        Self {
            calls: answers.iter().map(|answer| answer.call.as_str()).collect(),
            outcomes: rows.iter().map(|row| row.outcome).collect(),
            bodies: rows.iter().map(|row| row.body.clone()).collect(),
            rests: rows.into_iter().map(|row| row.rest).collect(),
            tokens: answers.iter().map(|answer| signed(answer.tokens)).collect(),
            hashes: answers.iter().map(|answer| answer.hash.as_str()).collect(),
            blobs: answers.iter().map(|answer| answer.full_output.as_ref().map(BlobId::as_str)).collect(),
        }
    }
}

impl AnswerColumns<'_> {
    /// $3 to $9
    fn params(&self) -> [Param<'_>; 7] {
        [&self.calls, &self.outcomes, &self.bodies, &self.rests, &self.tokens, &self.hashes, &self.blobs]
    }
}

fn submitted(answers: &[Vec<tokio_postgres::Row>]) -> Result<Submitted, Error> {
    let [_, written, _, remembered, calls, open] = answers else {
        return Err(Error::Corrupt("submit gave another number of answers".to_owned()));
    };
    let accepted: Vec<String> = written.first().map(|row| get(row, "accepted")).transpose()?.unwrap_or_default();
    let next_seq: Option<i64> = written.first().map(|row| get(row, "next_seq")).transpose()?;
    let last_seq = Seq(next_seq.map_or(0, |next| next - 1));
    let mut grant = None;
    if let Some(row) = written.first()
        && get(row, "resumes")?
    {
        grant = Some(Grant {
            fence: Fence { epoch: get(row, "epoch")?, op: get(row, "op")? },
            turn: TurnId::new(get::<String>(row, "turn_id")?),
            last_seq,
        });
    }
    Ok(Submitted {
        grant,
        last_seq,
        accepted: accepted.into_iter().map(CallId::new).collect(),
        hash: remembered.first().map(|row| get(row, "req_hash")).transpose()?,
        calls: known_calls(calls)?,
        pending: open
            .iter()
            .map(|row| Ok(CallId::new(get::<String>(row, "call_id")?)))
            .collect::<Result<_, Error>>()?,
    })
}

fn known_calls(rows: &[tokio_postgres::Row]) -> Result<BTreeMap<CallId, KnownCall>, Error> {
    rows.iter()
        .map(|row| {
            let call = KnownCall {
                turn: TurnId::new(get::<String>(row, "turn_id")?),
                step: count(row, "step")?,
                name: get(row, "tool_name")?,
                open: get(row, "open")?,
                overdue: get(row, "overdue")?,
                closed_by: get::<Option<String>>(row, "closed_by")?.map(RequestId::new),
                answer: get(row, "answer_hash")?,
            };
            Ok((CallId::new(get::<String>(row, "call_id")?), call))
        })
        .collect()
}

fn ids<'a>(calls: impl Iterator<Item = &'a CallId>) -> Vec<&'a str> {
    calls.map(CallId::as_str).collect()
}
