//! The queue of messages that clients send while a turn is running. Each message is taken into the transcript once, or
//! withdrawn with an event that gives the reason. An acknowledged message is either in the running turn or visible in
//! the queue at any time.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    admission::Admission,
    bounded_page::BoundedPage,
    commit::{CommitMetadata, CommitOutcome, MAX_COMMIT_CONFLICTS, RequestResult},
    grant::Grant,
    idempotency::StoredRequest,
    named_parameters::Named,
    number::enum_value,
    pipeline::Param,
    queue_status::{APPLIED, CANCELLED, DROPPED, EXPIRED, PENDING},
    row::{count, duration, get, last_seq},
};
use crate::{
    model::{Delivery, DropReason, Fence, MessageId, RequestId, Seq, SessionKey, TurnId, command::Idempotency},
    session::{
        Session, SessionState,
        change::Change,
        queue::{self, MessageSelection},
        queue_rows::{NewQueuedMessage, Withdrawal},
        start,
    },
};

/// State of a queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueState {
    /// It is still queued.
    Pending {
        /// Its rank in the queue, from 1.
        position: u32,
    },
    /// It became part of this user message.
    Applied(MessageId),
    /// Cancelled by a client.
    Cancelled,
    /// Its time to live has passed.
    Expired,
    /// Dropped for this reason.
    Dropped(DropReason),
}

/// A message to enqueue.
#[derive(Debug, Clone)]
pub struct NewQueued<'a> {
    pub message: &'a MessageId,
    /// The encoded message.
    pub body: &'a [u8],
    /// The blobs that it refers to.
    pub blobs: &'a [&'a str],
    /// When a turn takes it.
    pub delivery: Delivery,
    /// Whether it starts a turn if none is running.
    pub starts_turn: bool,
    /// The encoded turn request, if it is the input of an ExecuteTurn.
    pub execute: Option<&'a [u8]>,
    /// Time until it expires.
    pub ttl: Option<Duration>,
    /// Maximum number of messages in the queue.
    pub limit: u32,
    pub idempotency: &'a Idempotency,
}

/// The outcome of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is or was in the queue.
    Queued(EnqueuedMessage),
    /// The request had another effect: an ExecuteTurn that found its session idle.
    OtherEffect(StoredRequest),
    /// The queue is at its limit.
    Full,
    NoSession,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// A queued message, with the state of the session when it was enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueuedMessage {
    /// The message; that of the first request if this is a repetition.
    pub message: MessageId,
    pub state: QueueState,
    /// State of the session. While the message is queued and a turn is running, that turn does not end without taking
    /// it.
    pub session_state: SessionState,
    /// The running turn.
    pub turn: Option<TurnId>,
    /// The grant to run that turn, if this message started it.
    pub grant: Option<Grant>,
    /// The turn that it interrupts and its fence, if this replica owns the turn, possibly since this enqueue.
    pub interrupts: Option<(TurnId, Fence)>,
    pub enqueued_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// A message that is or was in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    pub message: MessageId,
    /// Its state. The position is its rank among the listed messages.
    pub state: QueueState,
    /// Its place in the order: a cursor, not a rank.
    pub cursor: i64,
    /// When a turn takes it.
    pub delivery: Delivery,
    /// Whether it starts a turn if none is running.
    pub starts_turn: bool,
    /// The encoded turn request, if it is the input of an ExecuteTurn.
    pub execute: Option<Vec<u8>>,
    /// The encoded message.
    pub body: Vec<u8>,
    /// The request that enqueued it.
    pub request: Option<RequestId>,
    pub enqueued_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Whether it has expired.
    pub expired: bool,
}

/// The messages that a turn may take, with the state of the session in the same snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// The current fence.
    pub fence: Fence,
    /// The running turn, or the last one. `None` if there never was one.
    pub turn: Option<TurnId>,
    pub state: SessionState,
    /// Whether a cancel of the turn was requested.
    pub cancelled: bool,
    /// Number of calls that wait for results. While there are any, nothing can be taken.
    pub open_calls: u32,
    /// The newest seq, which a take must name.
    pub last_seq: Seq,
    /// The messages queued for the turn, in order.
    pub waiting: Vec<QueuedMessage>,
}

/// The outcome of a withdrawal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WithdrawalOutcome {
    /// The messages, in order; those of the first request if this is a repetition.
    pub messages: Vec<MessageId>,
    /// The newest seq that it wrote. `None` if nothing was written.
    pub last_seq: Option<Seq>,
    /// The request hash that was first stored under the idempotency key.
    pub hash: Option<String>,
}

pub(super) static OUTCOME: LazyLock<Named> = named_alone!("sql/queue_outcome.sql");

pub(super) static LOOK: LazyLock<Named> = named_alone!("sql/queue/look.sql");
pub(super) static QUEUED: LazyLock<Named> = named_alone!("sql/queue/list.sql");
pub(super) static QUEUED_MESSAGE: LazyLock<Named> = named_alone!("sql/queue/one.sql");

impl Store {
    /// Enqueues a message and, with `start`, starts a turn for it if the session is idle. All in one commit.
    pub async fn enqueue(
        &self,
        key: &SessionKey,
        new: &NewQueued<'_>,
        start: Option<&Admission<'_>>,
    ) -> Result<Enqueued, Error> {
        let result = RequestResult::Text(new.message.as_str());
        let estimator = start.map_or("", |start| &start.new.rows.estimator);
        let commit = CommitMetadata::counted_by(estimator).storing(new.idempotency, result);
        let join = |session: &Session| self.joined(session, new, start);
        if let Some((joined, landed)) = self.commit_from_cache(key, join, &commit).await? {
            return self.placed(new, &joined, &landed).map(Enqueued::Queued);
        }
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let (seen, known) = self.read_session_and_request(key, new.idempotency).await?;
            let Some(seen) = seen.filter(|seen| seen.session.state != SessionState::Deleted) else {
                return Ok(Enqueued::NoSession);
            };
            if let Some(known) = known {
                return self.queued_before(key, known, new).await;
            }
            let Some(joined) = join(&seen.session) else {
                return Ok(Enqueued::Full);
            };
            if let Some(landed) = self.commit(key, seen.before(), &joined, &commit).await? {
                return self.placed(new, &joined, &landed).map(Enqueued::Queued);
            }
        }
        Err(Error::Conflict("concurrent writes prevented the enqueue of a message".to_owned()))
    }

    /// The session after the message joined its queue. Returns `None` if the queue is at its limit or the session is
    /// deleted.
    fn joined<'a>(&self, session: &Session, new: &NewQueued<'a>, start: Option<&Admission<'a>>) -> Option<Change<'a>> {
        let joining = NewQueuedMessage {
            message: new.message,
            body: new.body,
            blobs: new.blobs,
            delivery: new.delivery,
            starts_turn: new.starts_turn,
            execute: new.execute,
            ttl: new.ttl,
            request: new.idempotency.request.as_ref(),
        };
        let most = usize::try_from(new.limit).unwrap_or(usize::MAX);
        let mut joined = queue::enqueue(session, joining, most, self.next_owner())?;
        let begin = |admission: &Admission<'a>| {
            start::start_for(&joined.session, new.message, &admission.new, self.next_owner())
        };
        joined.next = start.and_then(begin).map(Box::new);
        Some(joined)
    }

    /// The state of a message that was just enqueued.
    fn placed(
        &self,
        new: &NewQueued<'_>,
        joined: &Change<'_>,
        landed: &CommitOutcome,
    ) -> Result<EnqueuedMessage, Error> {
        let started = joined.next.as_deref();
        let Some((enqueued_at, expires_at)) = landed.joined else {
            return Err(Error::Corrupt("a commit returned no enqueue time for its message".to_owned()));
        };
        let waiting = joined.session.queue.len();
        let becoming = started.map_or(&joined.session, |started| &started.session);
        let interrupts = joined.session.cancel.is_some() && new.delivery == Delivery::Interrupt;
        let own = joined.session.is_owned_by(&self.replica);
        let turn = joined.session.turn.clone();
        Ok(EnqueuedMessage {
            message: new.message.clone(),
            state: QueueState::Pending { position: u32::try_from(waiting).unwrap_or(u32::MAX) },
            session_state: becoming.state,
            turn: becoming.live_turn().cloned(),
            grant: started.and_then(|started| Grant::of(&started.session)),
            interrupts: turn.filter(|_| interrupts && own).map(|turn| (turn, joined.session.fence)),
            enqueued_at,
            expires_at,
        })
    }

    /// The outcome of the first request with this idempotency key.
    async fn queued_before(
        &self,
        key: &SessionKey,
        known: StoredRequest,
        new: &NewQueued<'_>,
    ) -> Result<Enqueued, Error> {
        if known.hash != new.idempotency.hash {
            return Ok(Enqueued::Mismatch);
        }
        let rows = self.database.read_named_in(key, &OUTCOME, &[("message", &known.result)]).await?;
        match rows.first() {
            Some(row) => Ok(Enqueued::Queued(place(row)?)),
            None => Ok(Enqueued::OtherEffect(known)),
        }
    }

    /// Reads the messages queued for the running turn and the state of the session in one snapshot. Returns `None` if
    /// the session does not exist.
    pub async fn queue_snapshot(&self, key: &SessionKey) -> Result<Option<QueueSnapshot>, Error> {
        let rows = self.database.read_named_in(key, &LOOK, &[]).await?;
        let Some(head) = rows.first() else {
            return Ok(None);
        };
        let empty = get::<Option<String>>(head, "message_id")?.is_none();
        Ok(Some(QueueSnapshot {
            fence: Fence { epoch: get(head, "epoch")?, op: get(head, "op")? },
            turn: get::<Option<String>>(head, "turn_id")?.map(TurnId::new),
            state: enum_value(head, "state")?,
            cancelled: get::<i16>(head, "cancel")? != 0,
            open_calls: count(head, "open_calls")?,
            last_seq: last_seq(head)?,
            waiting: if empty { Vec::new() } else { rows.iter().map(queued).collect::<Result<_, _>>()? },
        }))
    }

    /// Withdraws queued messages, each with an event with this payload. Messages that are no longer queued are left
    /// unchanged.
    pub async fn unqueue(
        &self,
        key: &SessionKey,
        which: MessageSelection<'_>,
        why: Withdrawal,
        payload: &[u8],
        idempotency: &Idempotency,
    ) -> Result<WithdrawalOutcome, Error> {
        Box::pin(self.withdraw(key, (which, why, payload), idempotency)).await
    }

    async fn withdraw(
        &self,
        key: &SessionKey,
        (which, why, payload): (MessageSelection<'_>, Withdrawal, &[u8]),
        idempotency: &Idempotency,
    ) -> Result<WithdrawalOutcome, Error> {
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let (seen, known) = self.read_session_and_request(key, idempotency).await?;
            if let Some(known) = known {
                return Ok(withdrawn_before(known));
            }
            let withdrawn = seen.and_then(|seen| {
                let gone = queue::withdraw(&seen.session, which, why, payload, seen.now)?;
                Some((seen, gone))
            });
            let Some((seen, gone)) = withdrawn else {
                let known = self.store_request_result(key, idempotency, "").await?;
                return Ok(known.map(withdrawn_before).unwrap_or_default());
            };
            let messages: Vec<MessageId> = gone.queue.removed.iter().map(|it| it.message.clone()).collect();
            let led: Vec<&str> = messages.iter().map(MessageId::as_str).collect();
            let led = led.join(" ");
            let commit = CommitMetadata::default().storing(idempotency, RequestResult::Text(&led));
            if self.commit(key, seen.before(), &gone, &commit).await?.is_some() {
                return Ok(WithdrawalOutcome {
                    messages,
                    last_seq: Some(gone.session.last_seq()),
                    hash: idempotency.request.as_ref().map(|_| idempotency.hash.clone()),
                });
            }
        }
        Err(Error::Conflict("concurrent writes prevented the withdrawal of a message".to_owned()))
    }

    /// Lists the queued messages after the cursor `after` (0 for the beginning), in order.
    pub async fn queued(
        &self,
        key: &SessionKey,
        after: i64,
        limit: u32,
        bytes: i64,
    ) -> Result<BoundedPage<QueuedMessage>, Error> {
        let values: [(&str, Param<'_>); 3] = [("after", &after), ("limit", &i64::from(limit)), ("bytes", &bytes)];
        let rows = self.database.read_named_in(key, &QUEUED, &values).await?;
        let mut page = BoundedPage::new(rows.iter().map(queued).collect::<Result<_, _>>()?, &rows)?;
        page.more |= page.items.len() == limit as usize;
        Ok(page)
    }

    /// Counts the messages in all queues, and returns the age of the oldest of them. Reads at most `most` messages.
    pub async fn backlog(&self, most: u32) -> Result<(u64, Duration), Error> {
        const SQL: &str = "-- store::queue::backlog
            select count(*) as waiting, coalesce(extract(epoch from now() - min(enqueued_at)), 0)::float8 as oldest
              from (select enqueued_at from queue where status = 0 order by tenant_id, session_id, pos limit $1) q";
        let rows = self.reserved().read(SQL, &[&i64::from(most)]).await?;
        let Some(row) = rows.first() else {
            return Ok((0, Duration::ZERO));
        };
        Ok((get::<i64>(row, "waiting")?.unsigned_abs(), duration(row, "oldest")?))
    }

    /// Reads one message in any state. Returns `None` if it was never in this queue.
    pub async fn queued_message(&self, key: &SessionKey, message: &MessageId) -> Result<Option<QueuedMessage>, Error> {
        let rows = self.database.read_named_in(key, &QUEUED_MESSAGE, &[("message", &message.as_str())]).await?;
        rows.first().map(queued).transpose()
    }
}

fn state(row: &Row) -> Result<QueueState, Error> {
    match get::<i16>(row, "status")? {
        PENDING => Ok(QueueState::Pending { position: count(row, "position")? }),
        APPLIED => Ok(QueueState::Applied(MessageId::new(get::<String>(row, "applied_to")?))),
        CANCELLED => Ok(QueueState::Cancelled),
        EXPIRED => Ok(QueueState::Expired),
        DROPPED => Ok(QueueState::Dropped(enum_value(row, "drop_reason")?)),
        other => Err(Error::Corrupt(format!("unknown queue status {other}"))),
    }
}

pub(super) fn queued(row: &Row) -> Result<QueuedMessage, Error> {
    Ok(QueuedMessage {
        message: MessageId::new(get::<String>(row, "message_id")?),
        state: state(row)?,
        cursor: get(row, "pos")?,
        delivery: enum_value(row, "delivery")?,
        starts_turn: get(row, "starts_turn")?,
        execute: get(row, "request")?,
        body: get(row, "body")?,
        request: get::<Option<String>>(row, "request_id")?.map(RequestId::new),
        enqueued_at: get(row, "enqueued_at")?,
        expires_at: get(row, "expires_at")?,
        expired: get(row, "expired")?,
    })
}

/// Decodes a message and the state of its session.
fn place(row: &Row) -> Result<EnqueuedMessage, Error> {
    let met: SessionState = enum_value(row, "state")?;
    let turn: Option<String> = get(row, "turn_id")?;
    Ok(EnqueuedMessage {
        message: MessageId::new(get::<String>(row, "message_id")?),
        state: state(row)?,
        session_state: met,
        turn: turn.filter(|_| met.is_live()).map(TurnId::new),
        grant: None,
        interrupts: None,
        enqueued_at: get(row, "enqueued_at")?,
        expires_at: get(row, "expires_at")?,
    })
}

/// The outcome of the first request with this idempotency key.
fn withdrawn_before(StoredRequest { hash, result }: StoredRequest) -> WithdrawalOutcome {
    WithdrawalOutcome {
        messages: result.split_whitespace().map(MessageId::new).collect(),
        last_seq: None,
        hash: Some(hash),
    }
}
