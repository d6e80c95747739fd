//! The queue: what users send while a turn runs. A message is taken into the transcript once, or
//! withdrawn with an event that says why; an acknowledged one is in the turn that runs or visibly
//! waits, never between the two.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    admission::{Admission, new_turn},
    bounded_page::Listed,
    commit::{Committed, Landed, Led, Races, Remember},
    grant::Grant,
    idempotency::Remembered,
    named_parameters::Named,
    pipeline::Param,
    queue_numbers::{APPLIED, CANCELLED, DROPPED, EXPIRED, PENDING, delivery, reason},
    row::{count, get, session_state},
    rows::Key,
    seen::SeenSession,
};
pub use crate::model::{Delivery, DropReason};
use crate::{
    model::{Fence, MessageId, RequestId, Seq, SessionKey, TurnId, command::Idempotency},
    session::{
        Session, SessionState,
        change::Change,
        queue::{self, Which},
        queue_rows::{Joining, Withdrawal},
        start,
    },
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
    /// Most messages that may wait.
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

/// What was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unqueued {
    /// The messages, in order; those of the first request when this is a repetition.
    pub messages: Vec<MessageId>,
    /// The newest seq that this made. `None` means nothing was written.
    pub last_seq: Option<Seq>,
    /// The hash that the idempotency key came with first.
    pub hash: Option<String>,
}

pub(super) static OUTCOME: LazyLock<Named> = named_alone!("sql/queue_outcome.sql");

pub(super) static LOOK: LazyLock<Named> = named_alone!("sql/queue/look.sql");
pub(super) static QUEUED: LazyLock<Named> = named_alone!("sql/queue/list.sql");
pub(super) static QUEUED_MESSAGE: LazyLock<Named> = named_alone!("sql/queue/one.sql");

impl Store {
    /// Queues a message, and with `start` begins a turn for it if the session is idle, all in one commit.
    pub async fn enqueue(
        &self,
        key: &SessionKey,
        new: &NewQueued<'_>,
        start: Option<&Admission<'_>>,
    ) -> Result<Enqueued, Error> {
        let commit = Committed {
            estimator: start.map_or("", |start| &start.rows.estimator),
            request: Some(Remember {
                request: new.idempotency,
                led: Led::To(new.message.as_str()),
                is_new: true,
            }),
            ..Committed::default()
        };
        let join = |session: &Session| self.joined(session, new, start);
        if let Some((joined, landed)) = self.commit_known(key, join, &commit).await? {
            return self.placed(new, &joined, &landed).map(Enqueued::Queued);
        }
        let mut races = Races::over("a queued message");
        loop {
            let (seen, known) = self.read_session_and_request(key, new.idempotency).await?;
            let Some(SeenSession {
                version, session, ..
            }) = seen.filter(|seen| seen.session.state != SessionState::Deleted)
            else {
                return Ok(Enqueued::NoSession);
            };
            if let Some(known) = known {
                return self.queued_before(key, known, new).await;
            }
            let Some(joined) = join(&session) else {
                return Ok(Enqueued::Full);
            };
            let seen = (version, &session);
            if let Some(landed) = self.commit(key, seen, &joined, &commit).await? {
                return self.placed(new, &joined, &landed).map(Enqueued::Queued);
            }
            races.lost()?;
        }
    }

    /// The session with the message in its queue. `None`: too many wait, or it is deleted.
    fn joined<'a>(
        &self,
        session: &Session,
        new: &NewQueued<'a>,
        start: Option<&Admission<'a>>,
    ) -> Option<Change<'a>> {
        let joining = Joining {
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
        let mut joined = queue::join(session, joining, most, self.heir())?;
        let begin = |admission: &Admission<'a>| {
            let new_turn = new_turn(admission);
            start::start_for(&joined.session, new.message, &new_turn, self.heir())
        };
        joined.next = start.and_then(begin).map(Box::new);
        Some(joined)
    }

    /// Where a message stands that was just queued, and what it met.
    fn placed(
        &self,
        new: &NewQueued<'_>,
        joined: &Change<'_>,
        landed: &Landed,
    ) -> Result<Place, Error> {
        let started = joined.next.as_deref();
        let Some((enqueued_at, expires_at)) = landed.joined else {
            return Err(Error::Corrupt("a message was not queued".to_owned()));
        };
        let waiting = joined.session.queue.len();
        let becoming = started.map_or(&joined.session, |started| &started.session);
        let interrupts = joined.session.cancel.is_some() && new.delivery == Delivery::Interrupt;
        let own = joined.session.is_owned_by(&self.replica);
        let turn = joined.session.turn.clone();
        Ok(Place {
            message: new.message.clone(),
            state: QueueState::Pending {
                position: u32::try_from(waiting).unwrap_or(u32::MAX),
            },
            met: becoming.state,
            turn: becoming.live_turn().cloned(),
            grant: started.and_then(|started| Grant::of(&started.session)),
            interrupts: turn
                .filter(|_| interrupts && own)
                .map(|turn| (turn, joined.session.fence)),
            enqueued_at,
            expires_at,
        })
    }

    /// The outcome of the same request before.
    async fn queued_before(
        &self,
        key: &SessionKey,
        known: Remembered,
        new: &NewQueued<'_>,
    ) -> Result<Enqueued, Error> {
        if known.hash != new.idempotency.hash {
            return Ok(Enqueued::Mismatch);
        }
        let key = Key::from(key);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("message", &known.result),
        ];
        let rows = self.database.read_named(&OUTCOME, &values).await?;
        match rows.first() {
            Some(row) => Ok(Enqueued::Queued(place(row)?)),
            None => Ok(Enqueued::Elsewhere(known)),
        }
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
        Box::pin(self.withdraw(key, (which, why, payload), idempotency)).await
    }

    async fn withdraw(
        &self,
        key: &SessionKey,
        (which, why, payload): (Which<'_>, Withdrawal, &[u8]),
        idempotency: &Idempotency,
    ) -> Result<Unqueued, Error> {
        let mut races = Races::over("a withdrawal");
        loop {
            let (seen, known) = self.read_session_and_request(key, idempotency).await?;
            if let Some(known) = known {
                return Ok(withdrawn_before(known));
            }
            let withdrawn = seen.and_then(|seen| {
                let gone = queue::withdraw(&seen.session, which, why, payload, seen.now)?;
                Some((seen, gone))
            });
            let Some((seen, gone)) = withdrawn else {
                let known = self.remember_request(key, idempotency).await?;
                return Ok(known.map(withdrawn_before).unwrap_or_default());
            };
            let messages: Vec<MessageId> = gone
                .queue
                .leave
                .iter()
                .map(|it| it.message.clone())
                .collect();
            let led: Vec<&str> = messages.iter().map(MessageId::as_str).collect();
            let led = led.join(" ");
            let commit = Committed {
                request: Some(Remember {
                    request: idempotency,
                    led: Led::To(&led),
                    is_new: true,
                }),
                ..Committed::default()
            };
            let before = (seen.version, &seen.session);
            if self.commit(key, before, &gone, &commit).await?.is_some() {
                return Ok(Unqueued {
                    messages,
                    last_seq: Some(gone.session.last_seq()),
                    hash: idempotency
                        .request
                        .as_ref()
                        .map(|_| idempotency.hash.clone()),
                });
            }
            races.lost()?;
        }
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

/// What the same request withdrew before.
fn withdrawn_before(Remembered { hash, result }: Remembered) -> Unqueued {
    Unqueued {
        messages: result.split_whitespace().map(MessageId::new).collect(),
        last_seq: None,
        hash: Some(hash),
    }
}
