//! Answers to tool calls: results, approvals, denials, and the end of a call's time. Whoever
//! answers the last open call of a turn without an owner becomes its owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use tokio_postgres::Row;

use super::{
    Error, Store,
    grant::Grant,
    idempotency::Request,
    lock::lock_run,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::get,
    rows::{Key, part_row, signed},
    tool_call::{
        ANSWERED, APPROVAL, CALLS, DENIED, KnownCall, OPEN, REQUESTED, TIMED_OUT, known_calls,
    },
};
use crate::{
    codec,
    model::{
        BlobId, CallId, Fence, Part, Payload, RequestId, Seq, SessionKey, TurnId,
        command::Idempotency,
    },
};

/// An answer that closes a call, cleaned and cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The call.
    pub call: CallId,
    /// What kind of answer it is.
    pub kind: AnswerKind,
    /// The tool result.
    pub part: Part,
    /// Its tokens.
    pub tokens: u32,
    /// The hash of the answer as it was sent.
    pub hash: String,
    /// What it refers to, each once: the whole output, when it was cut, and media.
    pub blobs: Vec<BlobId>,
}

/// What kind of answer closes a call. One that does not fit the call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerKind {
    /// The result of a call that was requested.
    Result {
        /// It was prepared for a call whose arguments a person changed.
        edited: bool,
    },
    /// A person's no to a call that awaits approval.
    Denial,
    /// Not answered: counts only when the call's time is up, or the turn's.
    Overdue,
}

/// A person's yes to a call that awaits approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The call.
    pub call: CallId,
    /// The arguments in place of the model's.
    pub edited: Option<String>,
    /// The request that follows: a [`Payload::ToolCallRequested`].
    pub request: Payload,
}

/// What comes after the last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// The encoded `step_started`. `None` means the turn takes no further step.
    pub started: Option<Vec<u8>>,
    /// What the size of its prompt has beside that of the transcript.
    pub size_offset: i64,
    /// The revision that both are made for. When another one is in force, beginning the step is
    /// left to the owner.
    pub revision: i64,
}

/// Answers to be written.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// Names it to the calls that it requests.
    pub id: &'a str,
    /// The answers that close a call.
    pub answers: &'a [Answer],
    /// The approvals.
    pub approvals: &'a [Approval],
    /// The calls to look at afterwards.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The right to go on, when these answers were the last ones.
    pub grant: Option<Grant>,
    /// The calls whose answers were accepted now.
    pub accepted: BTreeSet<CallId>,
    /// The newest seq that these answers made; 0 when nothing was accepted.
    pub last_seq: Seq,
    /// What the same idempotency key came with first.
    pub first: Option<FirstSubmission>,
    /// The calls as they are now.
    pub calls: BTreeMap<CallId, KnownCall>,
    /// Calls that MCP servers are to run from now on, each in the outcome of one submission only.
    pub requested: BTreeSet<CallId>,
    /// Calls of the session that wait for the host now, in the order the model made them.
    pub pending: Vec<CallId>,
}

/// The first submission under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSubmission {
    /// Its hash.
    pub hash: String,
    /// The calls whose answers were accepted then.
    pub accepted: BTreeSet<CallId>,
}

pub(super) static SUBMIT: LazyLock<Named> = named_alone!("sql/submit.sql");

impl Store {
    /// Writes answers. What does not wait for such an answer, or belongs to a turn that is being
    /// cancelled, is left alone.
    pub async fn submit(
        &self,
        key: &SessionKey,
        submission: &Submission<'_>,
    ) -> Result<Submitted, Error> {
        let Submission {
            id,
            answers,
            approvals,
            named,
            idempotency,
            estimator,
            overhead,
            next,
        } = submission;
        let key = Key::from(key);
        let lease = self.lease.as_secs_f64();
        let closing = AnswerColumns::from(*answers);
        let opening = ApprovalColumns::from(*approvals);
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let overhead = signed(*overhead);
        let mut values = vec![
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
        ];
        values.extend(closing.values());
        values.extend(opening.values());
        values.extend([
            ("submission", id as Param<'_>),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
            ("owner", &self.replica),
            ("lease", &lease),
            ("estimator", estimator),
            ("overhead", &overhead),
        ]);
        values.extend([
            ("started", &next.started as Param<'_>),
            ("offset", &next.size_offset),
            ("revision", &next.revision),
        ]);
        let named: Vec<&str> = named.iter().map(CallId::as_str).collect();
        let remembered = Request::new(&key, request, &idempotency.hash, "");
        let queries = [
            lock_run(&key),
            remembered.insert(),
            SUBMIT.query(&values)?,
            remembered.read(),
            Query::new(CALLS, vec![&key.tenant as Param<'_>, &key.session, &named]),
            Query::new(OPEN, vec![&key.tenant as Param<'_>, &key.session]),
        ];
        let answers = self.database.transact(&queries).await?;
        submitted(&answers, &idempotency.hash)
    }

    /// The calls of MCP servers that a submission requested, and that wait for their results.
    pub async fn requested_by(
        &self,
        key: &SessionKey,
        submission: &str,
    ) -> Result<BTreeSet<CallId>, Error> {
        const SQL: &str = "-- store::submission::requested_by
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

struct AnswerColumns<'a> {
    calls: Vec<&'a str>,
    outcomes: Vec<Option<i16>>,
    bodies: Vec<String>,
    rests: Vec<Option<Vec<u8>>>,
    tokens: Vec<i32>,
    hashes: Vec<&'a str>,
    blobs: Vec<Option<String>>,
    needs: Vec<Option<i16>>,
    becomes: Vec<i16>,
    edited: Vec<Option<bool>>,
}

impl<'a> From<&'a [Answer]> for AnswerColumns<'a> {
    fn from(answers: &'a [Answer]) -> Self {
        let rows: Vec<_> = answers
            .iter()
            .map(|answer| part_row(&answer.part))
            .collect();
        let kinds = || answers.iter().map(|answer| answer.kind);
        Self {
            calls: answers.iter().map(|answer| answer.call.as_str()).collect(),
            outcomes: rows.iter().map(|row| row.outcome).collect(),
            bodies: rows.iter().map(|row| row.body.clone()).collect(),
            rests: rows.into_iter().map(|row| row.rest).collect(),
            tokens: answers.iter().map(|answer| signed(answer.tokens)).collect(),
            hashes: answers.iter().map(|answer| answer.hash.as_str()).collect(),
            blobs: answers.iter().map(|answer| joined(&answer.blobs)).collect(),
            needs: kinds().map(AnswerKind::needs).collect(),
            becomes: kinds().map(AnswerKind::becomes).collect(),
            edited: kinds().map(AnswerKind::edited).collect(),
        }
    }
}

/// Ids as the statement takes them: with commas between. `None` means there are none.
fn joined(blobs: &[BlobId]) -> Option<String> {
    let ids: Vec<&str> = blobs.iter().map(BlobId::as_str).collect();
    (!ids.is_empty()).then(|| ids.join(","))
}

impl AnswerColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 10] {
        [
            ("closed_calls", &self.calls),
            ("outcomes", &self.outcomes),
            ("bodies", &self.bodies),
            ("rests", &self.rests),
            ("tokens", &self.tokens),
            ("hashes", &self.hashes),
            ("blobs", &self.blobs),
            ("needed", &self.needs),
            ("leads_to", &self.becomes),
            ("edited", &self.edited),
        ]
    }
}

impl AnswerKind {
    /// The status of the calls that it is for. `None` means whichever is open.
    fn needs(self) -> Option<i16> {
        match self {
            Self::Result { .. } => Some(REQUESTED),
            Self::Denial => Some(APPROVAL),
            Self::Overdue => None,
        }
    }

    fn becomes(self) -> i16 {
        match self {
            Self::Result { .. } => ANSWERED,
            Self::Denial => DENIED,
            Self::Overdue => TIMED_OUT,
        }
    }

    fn edited(self) -> Option<bool> {
        match self {
            Self::Result { edited } => Some(edited),
            Self::Denial | Self::Overdue => None,
        }
    }
}

struct ApprovalColumns<'a> {
    calls: Vec<&'a str>,
    requests: Vec<Vec<u8>>,
    edited: Vec<Option<&'a str>>,
}

impl<'a> From<&'a [Approval]> for ApprovalColumns<'a> {
    fn from(approvals: &'a [Approval]) -> Self {
        Self {
            calls: approvals
                .iter()
                .map(|approval| approval.call.as_str())
                .collect(),
            requests: approvals
                .iter()
                .map(|approval| codec::event::encode(&approval.request).payload)
                .collect(),
            edited: approvals
                .iter()
                .map(|approval| approval.edited.as_deref())
                .collect(),
        }
    }
}

impl ApprovalColumns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 3] {
        [
            ("approved_calls", &self.calls),
            ("requests", &self.requests),
            ("edits", &self.edited),
        ]
    }
}

fn submitted(answers: &[Vec<Row>], hash: &str) -> Result<Submitted, Error> {
    let [_, _, written, remembered, calls, open] = answers else {
        return Err(Error::Corrupt(
            "submit gave another number of answers".to_owned(),
        ));
    };
    let accepted: Vec<String> = written
        .first()
        .map(|row| get(row, "accepted"))
        .transpose()?
        .unwrap_or_default();
    let requested: Vec<String> = written
        .first()
        .map(|row| get(row, "requested"))
        .transpose()?
        .unwrap_or_default();
    let next_seq: Option<i64> = written
        .first()
        .map(|row| get(row, "next_seq"))
        .transpose()?;
    let last_seq = Seq(next_seq.map_or(0, |next| next - 1));
    let mut grant = None;
    if let Some(row) = written.first()
        && get(row, "resumes")?
    {
        grant = Some(Grant {
            fence: Fence {
                epoch: get(row, "epoch")?,
                op: get(row, "op")?,
            },
            turn: TurnId::new(get::<String>(row, "turn_id")?),
            last_seq,
        });
    }
    Ok(Submitted {
        grant,
        last_seq,
        accepted: accepted.into_iter().map(CallId::new).collect(),
        requested: requested.into_iter().map(CallId::new).collect(),
        first: remembered.first().map(|row| first(row, hash)).transpose()?,
        calls: known_calls(calls)?,
        pending: open
            .iter()
            .map(|row| Ok(CallId::new(get::<String>(row, "call_id")?)))
            .collect::<Result<_, Error>>()?,
    })
}

/// What is remembered. Under another hash it may be the work of another RPC, whose result is no
/// list of calls.
fn first(row: &Row, hash: &str) -> Result<FirstSubmission, Error> {
    let first: String = get(row, "req_hash")?;
    let result: &str = get(row, "result")?;
    let accepted = if first == hash && !result.is_empty() {
        codec::call::ids_from_text(result)?
    } else {
        BTreeSet::new()
    };
    Ok(FirstSubmission {
        hash: first,
        accepted,
    })
}
