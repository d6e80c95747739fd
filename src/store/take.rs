//! What waits becomes part of the transcript: in the hand of a turn's owner, or where no turn runs.

use super::{
    Error, Store,
    lease::lock_run,
    pipeline::{Param, Query},
    queue::{APPLIED, DROPPED, Look, reason_number},
    row::get,
    rows::{Key, Rows},
    turn::{Ack, Fenced},
};
use crate::model::{DropReason, Fence, MessageId, Seq, SessionKey};

/// One message that a take ends.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// Which.
    pub message: &'a MessageId,
    /// The user message it goes into, or why it is given up instead.
    pub end: Result<&'a MessageId, DropReason>,
    /// Which of the rows' events says so, from 1: [`Rows::events`] after it was added.
    pub event: i64,
}

/// The step that a take begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// None: the messages go into the step that the turn is at.
    None,
    /// The next one.
    InAnyCase,
    /// The next one, made for this revision of the configuration: another one in force refuses it.
    MadeFor(i64),
}

/// What became of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The messages are in the transcript.
    Applied(Ack),
    /// Something moved since the look: look again. Nothing was written.
    Moved,
    /// Another owner has the session.
    Fenced,
}

pub(super) const TAKE: &str = concat!(
    include_str!("sql/take.sql"),
    include_str!("sql/rows.sql"),
    include_str!("sql/grown.sql"),
    include_str!("sql/context_delta.sql"),
    " select f.state, f.cancel, f.next_seq from f"
);
impl Store {
    /// Takes messages into the transcript as `rows` say, if nothing moved since the look. `advance`: the rows begin the next step.
    pub async fn take(
        &self,
        key: &SessionKey,
        fence: Fence,
        seen: Seq,
        rows: &Rows,
        taken: &[Taken<'_>],
        advance: bool,
    ) -> Result<Take, Error> {
        let step = if advance { NextStep::InAnyCase } else { NextStep::None };
        self.take_for(key, fence, Some(seen), rows, taken, step).await
    }

    /// The same, for a step that is made for a revision. Without a seq that was seen the hot row is locked first, and others that
    /// write into the session refuse it no more: only what becomes of the messages themselves does.
    pub async fn take_for(
        &self,
        key: &SessionKey,
        fence: Fence,
        seen: Option<Seq>,
        rows: &Rows,
        taken: &[Taken<'_>],
        step: NextStep,
    ) -> Result<Take, Error> {
        let (key, columns) = (Key::from(key), TakenColumns::from(taken));
        let next_seq = seen.map(|seen| seen.0 + 1);
        let (steps, revision) = match step {
            NextStep::None => (0, None),
            NextStep::InAnyCase => (1, None),
            NextStep::MadeFor(revision) => (1, Some(revision)),
        };
        let lease = self.lease.as_secs_f64();
        let mut params = rows.params(&key);
        params.extend([&fence.epoch as Param<'_>, &fence.op, &next_seq, &steps, &lease]);
        params.extend(columns.params());
        params.extend([&revision as Param<'_>, &RUNNING]);
        let take = Query::new(TAKE, params);
        let queries = if seen.is_some() { vec![take] } else { vec![lock_run(&key), take] };
        match self.fenced_write(&key, fence, &queries).await? {
            Fenced::Applied(ack) => Ok(Take::Applied(ack)),
            Fenced::Refused => Ok(Take::Moved),
            Fenced::Gone => Ok(Take::Fenced),
        }
    }

    /// Takes messages into the transcript of an idle session, as `rows` say and for this revision of its configuration, if nothing moved
    /// since the look. None: something did, a turn began or calls are open. Else the newest seq.
    pub async fn take_idle(
        &self,
        key: &SessionKey,
        look: &Look,
        revision: i64,
        rows: &Rows,
        taken: &[Taken<'_>],
    ) -> Result<Option<Seq>, Error> {
        let (key, columns) = (Key::from(key), TakenColumns::from(taken));
        let (next_seq, steps, lease) = (look.last_seq.0 + 1, 0, None::<f64>);
        let mut params = rows.params(&key);
        params.extend([&look.fence.epoch as Param<'_>, &look.fence.op, &next_seq, &steps, &lease]);
        params.extend(columns.params());
        params.extend([&revision as Param<'_>, &IDLE]);
        let written = self.database.write(&Query::new(TAKE, params)).await?;
        written.first().map(|row| Ok(Seq(get::<i64>(row, "next_seq")? - 1))).transpose()
    }
}

struct TakenColumns<'a> {
    ids: Vec<&'a str>,
    statuses: Vec<i16>,
    events: Vec<i32>,
    into: Vec<Option<&'a str>>,
    reasons: Vec<Option<i16>>,
}

impl<'a> From<&[Taken<'a>]> for TakenColumns<'a> {
    fn from(taken: &[Taken<'a>]) -> Self {
        Self {
            ids: taken.iter().map(|taken| taken.message.as_str()).collect(),
            statuses: taken.iter().map(|taken| if taken.end.is_ok() { APPLIED } else { DROPPED }).collect(),
            events: taken.iter().map(|taken| i32::try_from(taken.event).unwrap_or(i32::MAX)).collect(),
            into: taken.iter().map(|taken| taken.end.ok().map(MessageId::as_str)).collect(),
            reasons: taken.iter().map(|taken| taken.end.err().map(reason_number)).collect(),
        }
    }
}

impl TakenColumns<'_> {
    /// $32 to $36
    fn params(&self) -> [Param<'_>; 5] {
        [&self.ids, &self.statuses, &self.events, &self.into, &self.reasons]
    }
}

/// The states of a session that a take is for.
const IDLE: i16 = 0;
const RUNNING: i16 = 1;
