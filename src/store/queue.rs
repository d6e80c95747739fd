//! The queue: what users send while a turn runs. A message is taken into the transcript once, or
//! withdrawn with an event that says why; an acknowledged one is in the turn that runs or visibly
//! waits, never between the two.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    admission::Admission,
    bounded_page::Listed,
    grant::Grant,
    idempotency::{Remembered, Request, remembered},
    lock::lock_run,
    named_parameters::Named,
    pipeline::{Param, Query},
    row::{count, get, session_state},
    rows::{Key, RowColumns},
    seen::{STOP, cause_number},
};
pub use crate::model::{Delivery, DropReason};
use crate::{
    codec,
    model::{
        CancelCause, Fence, MessageId, RequestId, Seq, SessionKey, TurnId, command::Idempotency,
    },
    session::SessionState,
    telemetry::Trace,
};

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueState {
    /// It waits.
    Pending {
        /// Its rank among those that wait, from 1.
        position: u32,
    },
    /// It went into this user message.
    Applied(MessageId),
    /// Withdrawn.
    Cancelled,
    /// Its time passed.
    Expired,
    /// Given up.
    Dropped(DropReason),
}

/// A message to be queued.
#[derive(Debug, Clone)]
pub struct NewQueued<'a> {
    /// Its id.
    pub message: &'a MessageId,
    /// The encoded message.
    pub body: &'a [u8],
    /// The blobs that it refers to.
    pub blobs: &'a [&'a str],
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// The encoded turn request, when it is the input of an ExecuteTurn.
    pub execute: Option<&'a [u8]>,
    /// When it is given up.
    pub ttl: Option<Duration>,
    /// Most messages that may wait; racing ones may pass it by their number.
    pub limit: u32,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
}

/// The outcome of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is in the queue, or was.
    Queued(Place),
    /// The same request did something else: an ExecuteTurn that found its session idle.
    Elsewhere(Remembered),
    /// Too many wait.
    Full,
    /// There is no such session.
    NoSession,
    /// The idempotency key came with another request before.
    Mismatch,
}

/// A message in the queue, and what it met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The message; that of the first request when this is a repetition.
    pub message: MessageId,
    /// Where it stands.
    pub state: QueueState,
    /// What the session is doing. While it waits and a turn runs, that turn does not end without
    /// it.
    pub met: SessionState,
    /// The live turn.
    pub turn: Option<TurnId>,
    /// The right to run that turn, when this message started it.
    pub grant: Option<Grant>,
    /// The fence of the turn that it interrupts, when this replica owns it, be it since then.
    pub interrupts: Option<(TurnId, Fence)>,
    /// When it came.
    pub enqueued_at: Timestamp,
    /// When it is given up.
    pub expires_at: Option<Timestamp>,
}

/// A message that is or was in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its id.
    pub message: MessageId,
    /// Where it stands; a position is the rank among those that were asked for.
    pub state: QueueState,
    /// Its place in the order: a cursor, not a rank.
    pub cursor: i64,
    /// When it is to be taken.
    pub delivery: Delivery,
    /// It starts a turn when none runs.
    pub starts_turn: bool,
    /// The encoded turn request, when it is the input of an ExecuteTurn.
    pub execute: Option<Vec<u8>>,
    /// The encoded message.
    pub body: Vec<u8>,
    /// The request that brought it.
    pub request: Option<RequestId>,
    /// When it came.
    pub enqueued_at: Timestamp,
    /// When it is given up.
    pub expires_at: Option<Timestamp>,
    /// That time has passed.
    pub expired: bool,
}

/// The messages that a turn may take, with the head that they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The fence in force.
    pub fence: Fence,
    /// The live turn, or the last one. `None` if there never was one.
    pub turn: Option<TurnId>,
    /// Where the session stands.
    pub state: SessionState,
    /// A cancel of the turn was requested.
    pub cancelled: bool,
    /// Calls that wait for results: nothing can be taken.
    pub open_calls: u32,
    /// The newest seq; a take names it.
    pub last_seq: Seq,
    /// What waits for the turn, in order.
    pub waiting: Vec<Queued>,
}

/// Which messages are withdrawn.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// All that wait.
    All,
    /// These, as far as they wait.
    These(&'a [MessageId]),
}

/// Why messages are withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// A client wants it.
    Cancelled,
    /// Their time passed; the database's clock says for which.
    Expired,
    /// The server gives them up.
    Dropped(DropReason),
}

/// What was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unqueued {
    /// The messages, in order; those of the first request when this is a repetition.
    pub messages: Vec<MessageId>,
    /// The newest seq that this made. `None` means nothing was written.
    pub last_seq: Option<Seq>,
    /// The hash that the idempotency key came with first.
    pub hash: Option<String>,
}

pub(super) static ENQUEUE: LazyLock<Named> = named_alone!("sql/enqueue/remembered.sql");
pub(super) static ENQUEUE_UNREMEMBERED: LazyLock<Named> =
    named_alone!("sql/enqueue/unremembered.sql");
pub(super) static START_IDLE: LazyLock<Named> = named_alone!("sql/start_idle.sql");
pub(super) static INTERRUPT: LazyLock<Named> = named_alone!("sql/interrupt.sql");
/// The blobs of a message that was just queued, under its own id for as long as the session lives:
/// content stays while it waits.
pub(super) const KEEP: &str = "-- store::queue::keep
    insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
    select $1, $2, $3, u.idx, u.blob from unnest($4::text[]) with ordinality as u(blob, idx)
     where exists (select from queue q where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $3) returning 1";
/// Where a message stands that was just queued, and what it met, after the statements that followed
/// the one that queued it.
pub(super) const PLACED: &str = "-- store::queue::placed
select m.state, m.turn_id, q.message_id, q.status, q.applied_to, q.drop_reason, q.enqueued_at, q.expires_at, m.position
  from queue q cross join queue_met($1, $2, q.pos) m
 where q.tenant_id = $1 and q.session_id = $2 and q.message_id = $3";
pub(super) static OUTCOME: LazyLock<Named> = named_alone!("sql/queue_outcome.sql");
pub(super) static UNQUEUE: LazyLock<Named> = named_alone!("sql/unqueue.sql");

pub(super) static LOOK: LazyLock<Named> = named_alone!("sql/queue/look.sql");
pub(super) static QUEUED: LazyLock<Named> = named_alone!("sql/queue/list.sql");
pub(super) static QUEUED_MESSAGE: LazyLock<Named> = named_alone!("sql/queue/one.sql");

impl Store {
    /// Queues a message, and with `start` begins a turn for it if the session is idle. One round
    /// trip, one commit; a second look if nothing was written.
    pub async fn enqueue(
        &self,
        key: &SessionKey,
        new: &NewQueued<'_>,
        start: Option<&Admission<'_>>,
    ) -> Result<Enqueued, Error> {
        let key = Key::from(key);
        let bound = NewParams::from(new);
        let start = start.map(|admission| StartParams::new(self, admission, new.message));
        let replica = self.replica();
        let lease = self.lease.as_secs_f64();
        let mut queries = vec![bound.query(&key)?];
        if !new.blobs.is_empty() {
            queries.push(Query::new(
                KEEP,
                vec![
                    &key.tenant as Param<'_>,
                    &key.session,
                    &bound.message,
                    &new.blobs,
                ],
            ));
        }
        let cause = cause_number(CancelCause::Interrupted);
        // Before the start: what is started by this message is not what it interrupts.
        let interrupts = (new.delivery == Delivery::Interrupt).then_some(queries.len() + 1);
        if interrupts.is_some() {
            let values = [
                ("tenant", &key.tenant as Param<'_>),
                ("session", &key.session),
                ("message", &bound.message),
                ("mode", &STOP),
                ("cause", &cause),
                ("reason", &""),
                ("owner", &replica),
                ("lease", &lease),
            ];
            queries.extend([lock_run(&key), INTERRUPT.query(&values)?]);
        }
        let starts = start.as_ref().map(|_| queries.len());
        if let Some(bound) = &start {
            queries.push(bound.query(&key, &false)?);
        }
        let answers = match queries.as_slice() {
            [alone] => vec![self.database.write(alone).await?],
            _ => {
                queries.push(Query::new(
                    PLACED,
                    vec![&key.tenant as Param<'_>, &key.session, &bound.message],
                ));
                self.database.transact(&queries).await?
            }
        };
        let first = |at: Option<usize>| {
            at.and_then(|at| answers.get(at))
                .and_then(|rows| rows.first())
        };
        let Some(placed) = first(answers.len().checked_sub(1)) else {
            let values = [
                ("tenant", &key.tenant as Param<'_>),
                ("session", &key.session),
                ("request_id", &bound.request_id),
                ("message", &bound.message),
            ];
            let outcome = OUTCOME.query(&values)?;
            let rows = self.database.read(outcome.sql, &outcome.params).await?;
            return not_queued(rows.first(), &new.idempotency.hash);
        };
        let grant = first(starts)
            .map(|row| self.granted(&key, row))
            .transpose()?;
        let interrupts = first(interrupts)
            .map(|row| interrupted(row, replica))
            .transpose()?
            .flatten();
        Ok(Enqueued::Queued(Place {
            grant,
            interrupts,
            ..place(placed)?
        }))
    }

    /// Begins a turn in an idle session for a message that waits. `None` means the session is not
    /// idle, its configuration changed, or the message waits no longer.
    pub async fn start_idle(
        &self,
        key: &SessionKey,
        message: &MessageId,
        admission: &Admission<'_>,
    ) -> Result<Option<Grant>, Error> {
        let key = Key::from(key);
        let bound = StartParams::new(self, admission, message);
        let answers = self
            .database
            .transact(&[lock_run(&key), bound.query(&key, &false)?])
            .await?;
        answers
            .last()
            .and_then(|rows| rows.first())
            .map(|row| self.granted(&key, row))
            .transpose()
    }

    /// What waits for the running turn, and the head it belongs to, in one snapshot. `None` means
    /// there is no such session.
    pub async fn look(&self, key: &SessionKey) -> Result<Option<Look>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &LOOK,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                ],
            )
            .await?;
        let Some(head) = rows.first() else {
            return Ok(None);
        };
        let next_seq: i64 = get(head, "next_seq")?;
        let empty = get::<Option<String>>(head, "message_id")?.is_none();
        Ok(Some(Look {
            fence: Fence {
                epoch: get(head, "epoch")?,
                op: get(head, "op")?,
            },
            turn: get::<Option<String>>(head, "turn_id")?.map(TurnId::new),
            state: session_state(get(head, "state")?)?,
            cancelled: get::<i16>(head, "cancel")? != 0,
            open_calls: count(head, "open_calls")?,
            last_seq: Seq(next_seq - 1),
            waiting: if empty {
                Vec::new()
            } else {
                rows.iter().map(queued).collect::<Result<_, _>>()?
            },
        }))
    }

    /// Withdraws messages that wait, each with an event of this payload. What waits no longer is
    /// left alone.
    pub async fn unqueue(
        &self,
        key: &SessionKey,
        which: Which<'_>,
        why: Withdrawal,
        payload: &[u8],
        idempotency: &Idempotency,
    ) -> Result<Unqueued, Error> {
        let key = Key::from(key);
        let ids: Option<Vec<&str>> = match which {
            Which::All => None,
            Which::These(ids) => Some(ids.iter().map(MessageId::as_str).collect()),
        };
        let (status, kind, reason) = withdrawal(why);
        let expired_only = why == Withdrawal::Expired;
        let request = idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("messages", &ids),
            ("status", &status),
            ("expired_only", &expired_only),
            ("drop_reason", &reason),
            ("kind", &kind),
            ("payload", &payload),
            ("request_id", &request),
            ("request_hash", &idempotency.hash),
        ];
        let known = Request::new(&key, request, &idempotency.hash, "");
        let answers = self
            .database
            .transact(&[lock_run(&key), UNQUEUE.query(&values)?, known.read()])
            .await?;
        unqueued(&answers)
    }

    /// The messages that wait after `after` (a cursor; 0: from the first), in order.
    pub async fn queued(
        &self,
        key: &SessionKey,
        after: i64,
        limit: u32,
        bytes: i64,
    ) -> Result<Listed<Queued>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &QUEUED,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                    ("after", &after),
                    ("limit", &i64::from(limit)),
                    ("bytes", &bytes),
                ],
            )
            .await?;
        let mut page = Listed::new(rows.iter().map(queued).collect::<Result<_, _>>()?, &rows)?;
        page.more |= page.items.len() == limit as usize;
        Ok(page)
    }

    /// How many messages wait, in all queues, and for how long the oldest of them has waited. At most
    /// `most` are looked at.
    pub async fn backlog(&self, most: u32) -> Result<(u64, Duration), Error> {
        const SQL: &str = "-- store::queue::backlog
            select count(*) as waiting, coalesce(extract(epoch from now() - min(enqueued_at)), 0)::float8 as oldest
              from (select enqueued_at from queue where status = 0 order by tenant_id, session_id, pos limit $1) q";
        let rows = self.aside().read(SQL, &[&i64::from(most)]).await?;
        let Some(row) = rows.first() else {
            return Ok((0, Duration::ZERO));
        };
        let oldest: f64 = get(row, "oldest")?;
        Ok((
            get::<i64>(row, "waiting")?.unsigned_abs(),
            Duration::try_from_secs_f64(oldest).unwrap_or_default(),
        ))
    }

    /// One message, wherever it stands. `None` means it never was in this queue.
    pub async fn queued_message(
        &self,
        key: &SessionKey,
        message: &MessageId,
    ) -> Result<Option<Queued>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &QUEUED_MESSAGE,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                    ("message", &message.as_str()),
                ],
            )
            .await?;
        rows.first().map(queued).transpose()
    }
}

struct NewParams<'a> {
    message: &'a str,
    body: &'a [u8],
    delivery: i16,
    starts_turn: bool,
    from_execute: bool,
    execute: Option<&'a [u8]>,
    ttl: Option<f64>,
    limit: i64,
    request_id: Option<&'a str>,
    hash: &'a str,
}

impl<'a> From<&NewQueued<'a>> for NewParams<'a> {
    fn from(new: &NewQueued<'a>) -> Self {
        let NewQueued {
            message,
            body,
            blobs: _,
            delivery,
            starts_turn,
            execute,
            ttl,
            limit,
            idempotency,
        } = new;
        Self {
            message: message.as_str(),
            body,
            delivery: delivery_number(*delivery),
            starts_turn: *starts_turn,
            from_execute: execute.is_some(),
            execute: *execute,
            ttl: ttl.map(|ttl| ttl.as_secs_f64()),
            limit: i64::from(*limit),
            request_id: idempotency.request.as_ref().map(RequestId::as_str),
            hash: &idempotency.hash,
        }
    }
}

impl NewParams<'_> {
    fn query<'q>(&'q self, key: &'q Key) -> Result<Query<'q>, Error> {
        let mut values = vec![
            ("tenant", &key.tenant as Param<'q>),
            ("session", &key.session),
            ("message", &self.message),
            ("body", &self.body),
            ("delivery", &self.delivery),
            ("starts_turn", &self.starts_turn),
            ("from_execute", &self.from_execute),
            ("request", &self.execute),
            ("ttl", &self.ttl),
            ("most_waiting", &self.limit),
        ];
        if self.request_id.is_none() {
            return Ok(ENQUEUE_UNREMEMBERED.query(&values)?);
        }
        values.extend([
            ("request_id", &self.request_id as Param<'q>),
            ("request_hash", &self.hash),
        ]);
        Ok(ENQUEUE.query(&values)?)
    }
}

pub(super) struct StartParams<'a> {
    rows: RowColumns<'a>,
    turn: &'a str,
    owner: &'a str,
    lease: f64,
    timeout: f64,
    revision: i64,
    request_id: Option<&'a str>,
    request: Vec<u8>,
    model: &'a str,
    trace: Option<String>,
    message: &'a str,
}

impl<'a> StartParams<'a> {
    pub(super) fn new(store: &'a Store, admission: &Admission<'a>, message: &'a MessageId) -> Self {
        Self {
            rows: RowColumns::from(admission.rows),
            turn: admission.turn.as_str(),
            owner: store.replica(),
            lease: store.lease().as_secs_f64(),
            timeout: admission.timeout.as_secs_f64(),
            revision: admission.revision,
            request_id: admission
                .idempotency
                .request
                .as_ref()
                .map(RequestId::as_str),
            request: codec::turn::encode_request(admission.request),
            model: admission.model,
            trace: Trace::current().stored(),
            message: message.as_str(),
        }
    }

    /// The statement. `follows`: only if the end of a turn before it in the same transaction was
    /// accepted.
    pub(super) fn query<'q>(&'q self, key: &'q Key, follows: &'q bool) -> Result<Query<'q>, Error> {
        let mut values = self.rows.values(key);
        values.extend([
            ("follows", follows as Param<'_>),
            ("turn", &self.turn),
            ("owner", &self.owner),
            ("lease", &self.lease),
            ("timeout", &self.timeout),
            ("revision", &self.revision),
            ("request_id", &self.request_id),
            ("request", &self.request),
            ("model", &self.model),
            ("trace", &self.trace),
            ("message", &self.message),
        ]);
        Ok(START_IDLE.query(&values)?)
    }
}

const PENDING: i16 = 0;
pub(super) const APPLIED: i16 = 1;
const CANCELLED: i16 = 2;
const EXPIRED: i16 = 3;
pub(super) const DROPPED: i16 = 4;

fn delivery_number(delivery: Delivery) -> i16 {
    match delivery {
        Delivery::Asap => 1,
        Delivery::WhenIdle => 2,
        Delivery::Interrupt => 3,
    }
}

fn delivery(number: i16) -> Result<Delivery, Error> {
    match number {
        1 => Ok(Delivery::Asap),
        2 => Ok(Delivery::WhenIdle),
        3 => Ok(Delivery::Interrupt),
        other => Err(Error::Corrupt(format!("delivery {other}"))),
    }
}

pub(super) fn reason_number(reason: DropReason) -> i16 {
    match reason {
        DropReason::SessionDeleted => 1,
        DropReason::Superseded => 2,
        DropReason::TooLarge => 3,
        DropReason::Unreadable => 4,
    }
}

fn reason(number: i16) -> Result<DropReason, Error> {
    match number {
        1 => Ok(DropReason::SessionDeleted),
        2 => Ok(DropReason::Superseded),
        3 => Ok(DropReason::TooLarge),
        4 => Ok(DropReason::Unreadable),
        other => Err(Error::Corrupt(format!("drop reason {other}"))),
    }
}

/// Status, kind of event and drop reason.
fn withdrawal(why: Withdrawal) -> (i16, &'static str, Option<i16>) {
    match why {
        Withdrawal::Cancelled => (CANCELLED, "queued_message_cancelled", None),
        Withdrawal::Expired => (EXPIRED, "queued_message_expired", None),
        Withdrawal::Dropped(reason) => (
            DROPPED,
            "queued_message_dropped",
            Some(reason_number(reason)),
        ),
    }
}

fn state(row: &Row) -> Result<QueueState, Error> {
    match get::<i16>(row, "status")? {
        PENDING => Ok(QueueState::Pending {
            position: count(row, "position")?,
        }),
        APPLIED => Ok(QueueState::Applied(MessageId::new(get::<String>(
            row,
            "applied_to",
        )?))),
        CANCELLED => Ok(QueueState::Cancelled),
        EXPIRED => Ok(QueueState::Expired),
        DROPPED => Ok(QueueState::Dropped(reason(get(row, "drop_reason")?)?)),
        other => Err(Error::Corrupt(format!("queue status {other}"))),
    }
}

pub(super) fn queued(row: &Row) -> Result<Queued, Error> {
    Ok(Queued {
        message: MessageId::new(get::<String>(row, "message_id")?),
        state: state(row)?,
        cursor: get(row, "pos")?,
        delivery: delivery(get(row, "delivery")?)?,
        starts_turn: get(row, "starts_turn")?,
        execute: get(row, "request")?,
        body: get(row, "body")?,
        request: get::<Option<String>>(row, "request_id")?.map(RequestId::new),
        enqueued_at: get(row, "enqueued_at")?,
        expires_at: get(row, "expires_at")?,
        expired: get(row, "expired")?,
    })
}

/// The turn that a message interrupts, with its fence where this replica is to end it.
fn interrupted(row: &Row, replica: &str) -> Result<Option<(TurnId, Fence)>, Error> {
    let owner: Option<String> = get(row, "owner")?;
    let fence = Fence {
        epoch: get(row, "epoch")?,
        op: get(row, "op")?,
    };
    let turn = TurnId::new(get::<String>(row, "turn_id")?);
    Ok((owner.as_deref() == Some(replica)).then_some((turn, fence)))
}

/// The outcome of an enqueue that wrote nothing.
fn not_queued(row: Option<&Row>, hash: &str) -> Result<Enqueued, Error> {
    let Some(row) = row else {
        return Ok(Enqueued::NoSession);
    };
    let Some(_) = get::<Option<String>>(row, "req_hash")? else {
        return Ok(Enqueued::Full);
    };
    let known = remembered(row)?;
    if known.hash != hash {
        return Ok(Enqueued::Mismatch);
    }
    match get::<Option<String>>(row, "message_id")? {
        Some(_) => Ok(Enqueued::Queued(place(row)?)),
        None => Ok(Enqueued::Elsewhere(known)),
    }
}

/// Where a message stands, and what it meets.
fn place(row: &Row) -> Result<Place, Error> {
    let met = session_state(get(row, "state")?)?;
    let turn: Option<String> = get(row, "turn_id")?;
    Ok(Place {
        message: MessageId::new(get::<String>(row, "message_id")?),
        state: state(row)?,
        met,
        turn: turn.filter(|_| met.is_live()).map(TurnId::new),
        grant: None,
        interrupts: None,
        enqueued_at: get(row, "enqueued_at")?,
        expires_at: get(row, "expires_at")?,
    })
}

fn unqueued(answers: &[Vec<Row>]) -> Result<Unqueued, Error> {
    let [_, withdrawn, known] = answers else {
        return Err(Error::Corrupt(
            "unqueue gave another number of answers".to_owned(),
        ));
    };
    let known = known.first().map(remembered).transpose()?;
    let next_seq: Option<i64> = withdrawn
        .first()
        .map(|row| get(row, "next_seq"))
        .transpose()?;
    let messages: Vec<String> = match &known {
        Some(Remembered { result, .. }) => result.split_whitespace().map(str::to_owned).collect(),
        None => withdrawn
            .iter()
            .map(|row| get(row, "message_id"))
            .collect::<Result<_, _>>()?,
    };
    Ok(Unqueued {
        messages: messages.into_iter().map(MessageId::new).collect(),
        last_seq: next_seq.map(|next| Seq(next - 1)),
        hash: known.map(|known| known.hash),
    })
}
