//! What waits becomes part of the transcript: in the hand of a turn's owner, or where no turn runs.

use std::sync::LazyLock;

use super::{
    Error, Store,
    lock::lock_run,
    named_parameters::{self, Named},
    pipeline::{Param, Query},
    queue::{APPLIED, DROPPED, Look, reason_number},
    row::get,
    rows::{Key, RowColumns},
    written::{Ack, Fenced},
};
use crate::{
    model::{DropReason, Fence, MessageId, Seq, SessionKey, TurnFence},
    session::rows::Rows,
};

/// One message that a take ends.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// Which.
    pub message: &'a MessageId,
    /// The user message it goes into, or why it is given up instead.
    pub end: Result<&'a MessageId, DropReason>,
    /// Which of the rows' events says so, from 1: [`Rows::count`] after it was added.
    pub event: i64,
}

/// Whether a take begins the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// No: the messages go into the step that the turn is at.
    Stay,
    /// Yes.
    InAnyCase,
    /// Yes, one made for this revision of the configuration: another one in force refuses it.
    MadeFor(i64),
}

/// The outcome of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The messages are in the transcript.
    Applied(Ack),
    /// Something moved since the look: look again. Nothing was written.
    Moved,
    /// Another owner has the session.
    Fenced,
}

/// The first one compares the fence and answers.
pub(super) static TAKE: LazyLock<Vec<Named>> = named![
    "sql/take/run.sql",
    "sql/take/compaction.sql",
    "sql/rows/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/rows/media.sql",
    "sql/take/queue.sql",
    "sql/rows/context.sql",
];

impl Store {
    /// Takes messages into the transcript of the turn as `rows` say, if nothing moved since `seen`;
    /// they begin the next step if `step` says so. Without a seq that was seen the hot row is
    /// locked first, and others that write into the session refuse it no more: only
    /// what becomes of the messages themselves does.
    pub async fn take(
        &self,
        key: &SessionKey,
        right: TurnFence<'_>,
        seen: Option<Seq>,
        rows: &Rows,
        taken: &[Taken<'_>],
        step: Advance,
    ) -> Result<Take, Error> {
        let key = Key::from(key);
        let (steps, revision) = match step {
            Advance::Stay => (0, None),
            Advance::InAnyCase => (1, None),
            Advance::MadeFor(revision) => (1, Some(revision)),
        };
        let lease = Some(self.lease.as_secs_f64());
        let owner = Some((self.replica(), right.turn.as_str())).unzip();
        let params = TakeParams {
            steps,
            lease,
            revision,
            owner,
            state: RUNNING,
            ..TakeParams::new(right.fence, seen, taken)
        };
        let mut queries: Vec<Query<'_>> =
            seen.is_none().then(|| lock_run(&key)).into_iter().collect();
        let own = queries.len();
        let rows = RowColumns::from(rows);
        queries.extend(params.queries(&key, &rows)?);
        match self.fenced_write(&key, right, &queries, own).await? {
            Fenced::Applied(ack) => Ok(Take::Applied(ack)),
            Fenced::Refused => Ok(Take::Moved),
            Fenced::Gone => Ok(Take::Fenced),
        }
    }

    /// Takes messages into the transcript of an idle session, as `rows` say and for this revision
    /// of its configuration, if nothing moved since the look. `None` means something did, a
    /// turn began or calls are open. Else the newest seq.
    pub async fn take_idle(
        &self,
        key: &SessionKey,
        look: &Look,
        revision: i64,
        rows: &Rows,
        taken: &[Taken<'_>],
    ) -> Result<Option<Seq>, Error> {
        let key = Key::from(key);
        let params = TakeParams {
            revision: Some(revision),
            ..TakeParams::new(look.fence, Some(look.last_seq), taken)
        };
        let rows = RowColumns::from(rows);
        let queries = params.queries(&key, &rows)?;
        match self.database.transact(&queries).await {
            Ok(answers) => answers
                .first()
                .and_then(|rows| rows.first())
                .map(|row| Ok(Seq(get::<i64>(row, "next_seq")? - 1)))
                .transpose(),
            Err(error) => Err(error),
        }
    }
}

/// The states of a session that a take is for.
const IDLE: i16 = 0;
const RUNNING: i16 = 1;

struct TakeParams<'a> {
    fence: Fence,
    next_seq: Option<i64>,
    steps: i32,
    lease: Option<f64>,
    ids: Vec<&'a str>,
    statuses: Vec<i16>,
    events: Vec<i32>,
    into: Vec<Option<&'a str>>,
    reasons: Vec<Option<i16>>,
    revision: Option<i64>,
    state: i16,
    /// The owner and its turn.
    owner: (Option<&'a str>, Option<&'a str>),
}

impl<'a> TakeParams<'a> {
    /// For an idle session, of whatever revision.
    fn new(fence: Fence, seen: Option<Seq>, taken: &[Taken<'a>]) -> Self {
        Self {
            fence,
            next_seq: seen.map(|seen| seen.0 + 1),
            steps: 0,
            lease: None,
            ids: taken.iter().map(|taken| taken.message.as_str()).collect(),
            statuses: taken
                .iter()
                .map(|taken| if taken.end.is_ok() { APPLIED } else { DROPPED })
                .collect(),
            events: taken
                .iter()
                .map(|taken| i32::try_from(taken.event).unwrap_or(i32::MAX))
                .collect(),
            into: taken
                .iter()
                .map(|taken| taken.end.ok().map(MessageId::as_str))
                .collect(),
            reasons: taken
                .iter()
                .map(|taken| taken.end.err().map(reason_number))
                .collect(),
            revision: None,
            state: IDLE,
            owner: (None, None),
        }
    }

    fn queries<'q>(
        &'q self,
        key: &'q Key,
        rows: &'q RowColumns<'q>,
    ) -> Result<Vec<Query<'q>>, Error> {
        let mut values = rows.values(key);
        values.extend([
            ("epoch", &self.fence.epoch as Param<'q>),
            ("op", &self.fence.op),
            ("owner", &self.owner.0),
            ("turn", &self.owner.1),
            ("next_seq", &self.next_seq),
            ("revision", &self.revision),
            ("state", &self.state),
            ("begun_steps", &self.steps),
            ("lease", &self.lease),
        ]);
        values.extend([
            ("queued", &self.ids as Param<'q>),
            ("queued_statuses", &self.statuses),
            ("queued_events", &self.events),
            ("queued_into", &self.into),
            ("drop_reasons", &self.reasons),
        ]);
        Ok(named_parameters::queries(
            &TAKE,
            &values,
            |name| match name {
                "store::take::take_compaction" => self.state == IDLE,
                name => rows.need(name),
            },
        )?)
    }
}
