//! The turn that follows the end of a turn: for a queued message that starts a turn, it begins in the transaction that
//! ends the previous one. Also finds sessions that need attention without a notification: messages that are queued in
//! an idle session or have expired.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    admission::Admission,
    key::key_columns,
    named_parameters::Named,
    pipeline::Param,
    queue::{QueuedMessage, queued},
    row::{get, session_key},
};
use crate::model::{MessageId, Seq, SessionKey, TurnId};

/// The turn that follows.
#[derive(Debug, Clone)]
pub struct NextTurn<'a> {
    /// The queued message for which it starts.
    pub message: &'a MessageId,
    pub admission: Admission<'a>,
}

/// The queued messages that may start a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnStarters {
    /// All messages that request a turn: after a completed turn.
    AfterCompletion,
    /// Only inputs of ExecuteTurn and interrupting messages: after any other end.
    AfterAnyEnd,
}

/// The queue state relevant to the end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAtTurnEnd {
    /// Whether messages are queued for this turn.
    pub waiting: bool,
    /// The first message that starts a new turn.
    pub starter: Option<QueuedMessage>,
}

/// The outcome of a queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueuedOutcome {
    /// It is still queued.
    Waiting,
    /// A turn took it.
    Taken {
        turn: TurnId,
        /// All events about the message have a seq greater than this.
        after: Seq,
    },
    /// It left the queue another way, with this event.
    Ended(Seq),
}

pub(super) static AHEAD: LazyLock<Named> = named_alone!("sql/queue/ahead.sql");
static STARTING: LazyLock<Named> = named_alone!("sql/queue/starting.sql");
pub(super) static FATE: LazyLock<Named> = named_alone!("sql/queue/fate.sql");

impl Store {
    /// Reads the queue state relevant to the end of a turn, or to starting a turn in an idle session.
    pub async fn queue_at_turn_end(&self, key: &SessionKey, starters: TurnStarters) -> Result<QueueAtTurnEnd, Error> {
        let in_any_case = starters == TurnStarters::AfterAnyEnd;
        let rows = self.database.read_named_in(key, &AHEAD, &[("in_any_case", &in_any_case)]).await?;
        let Some(row) = rows.first() else {
            return Ok(QueueAtTurnEnd { waiting: false, starter: None });
        };
        let found = get::<Option<String>>(row, "message_id")?.is_some();
        Ok(QueueAtTurnEnd { waiting: get(row, "waiting")?, starter: found.then(|| queued(row)).transpose()? })
    }

    /// Reads the outcome of a queued message. Returns `None` if there is no such message.
    pub async fn queued_outcome(&self, key: &SessionKey, message: &MessageId) -> Result<Option<QueuedOutcome>, Error> {
        let rows = self.database.read_named_in(key, &FATE, &[("message", &message.as_str())]).await?;
        rows.first().map(fate).transpose()
    }

    /// Lists idle sessions in which a queued message requests a turn, in random order. Excludes the tenants in
    /// `without` and the sessions in `postponed`.
    pub async fn sessions_to_start(
        &self,
        limit: u32,
        without: &[&str],
        postponed: &[SessionKey],
    ) -> Result<Vec<SessionKey>, Error> {
        let (limit, (tenants, sessions)) = (i64::from(limit), key_columns(postponed));
        let values: [(&str, Param<'_>); 4] =
            [("limit", &limit), ("without", &without), ("tenants", &tenants), ("sessions", &sessions)];
        let rows = self.database.read_named(&STARTING, &values).await?;
        rows.iter().map(session_key).collect()
    }

    /// Lists sessions with expired queued messages.
    pub async fn sessions_with_expired_messages(&self, limit: u32) -> Result<Vec<SessionKey>, Error> {
        const SQL: &str = "-- store::following::expiring
            select q.tenant_id, q.session_id from queue q
             where q.status = 0 and q.expires_at < now()
             group by q.tenant_id, q.session_id order by random() limit $1";
        let rows = self.database.read(SQL, &[&i64::from(limit)]).await?;
        rows.iter().map(session_key).collect()
    }
}

fn fate(row: &Row) -> Result<QueuedOutcome, Error> {
    let turn: Option<String> = get(row, "turn_id")?;
    Ok(match (get::<Option<i64>>(row, "seq")?, turn) {
        (None, _) => QueuedOutcome::Waiting,
        (Some(_), Some(turn)) => QueuedOutcome::Taken { turn: TurnId::new(turn), after: Seq(get(row, "after")?) },
        (Some(seq), None) => QueuedOutcome::Ended(Seq(seq)),
    })
}
