//! Reads a session before a change of it is decided, and encodes its cancel request.

use std::sync::LazyLock;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    counters::counters,
    idempotency::{READ, StoredRequest, stored_request},
    key::Key,
    named_parameters::Named,
    number::{Number as _, enum_value},
    row::{count, duration, get, json},
    tool_call::waits_for,
};
use crate::{
    model::{
        CallId, CompactionId, Delivery, Fence, MessageId, RequestId, Seq, SessionKey, TurnId, command::Idempotency,
    },
    session::{CancelRequest, QueuedMessage, Session, Version, answers::OpenCall, compaction_rows::RunningCompaction},
};

/// A session with its version.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionSnapshot {
    /// The version, which a commit compares.
    pub(super) version: Version,
    pub(super) session: Session,
    /// The database's time of the read.
    pub(super) now: Timestamp,
}

impl SessionSnapshot {
    /// The session that a commit compares and changes.
    pub(super) fn before(&self) -> (Version, &Session) {
        (self.version, &self.session)
    }
}

/// Read before anything else: if a commit then finds the session unchanged, the other data is unchanged too.
pub(super) static SESSION: LazyLock<Named> = named_alone!("sql/commit/seen.sql");

/// Read after the session.
pub(super) static OPEN_CALLS: LazyLock<Named> = named_alone!("sql/calls/open.sql");

/// The value of `session_run.cancel` for a turn that must stop.
const STOP: i16 = 1;
/// The value of `session_run.cancel` for a turn that must stop and be rolled back.
const ROLLBACK: i16 = 2;

impl Store {
    /// Reads a session. Returns `None` if it does not exist.
    pub(super) async fn read_session(&self, key: &SessionKey) -> Result<Option<SessionSnapshot>, Error> {
        let rows = self.database.read_named_in(key, &SESSION, &[]).await?;
        rows.first().map(seen_session).transpose()
    }

    /// Reads a session and the open calls of its running turn, in the order in which the model made them.
    pub(super) async fn read_session_and_calls(
        &self,
        key: &SessionKey,
    ) -> Result<Option<(SessionSnapshot, Vec<OpenCall>)>, Error> {
        let key = Key::from(key);
        let queries = [key.named(&SESSION, &[])?, key.named(&OPEN_CALLS, &[])?];
        let answers = self.database.read_together(&queries).await?;
        let [session, open] = answers.as_slice() else {
            return Err(another_number());
        };
        let Some(row) = session.first() else {
            return Ok(None);
        };
        let open = open.iter().map(open_call).collect::<Result<_, _>>()?;
        Ok(Some((seen_session(row)?, open)))
    }

    /// Reads a session and the stored request for the idempotency key.
    pub(super) async fn read_session_and_request(
        &self,
        key: &SessionKey,
        Idempotency { request, .. }: &Idempotency,
    ) -> Result<(Option<SessionSnapshot>, Option<StoredRequest>), Error> {
        let Some(request) = request.as_ref().map(RequestId::as_str) else {
            return Ok((self.read_session(key).await?, None));
        };
        let key = Key::from(key);
        let queries = [key.named(&SESSION, &[])?, key.query(READ, &[&request])];
        let answers = self.database.read_together(&queries).await?;
        let first = |at: usize| answers.get(at).and_then(|rows| rows.first());
        Ok((first(0).map(seen_session).transpose()?, first(1).map(stored_request).transpose()?))
    }
}

pub(super) fn another_number() -> Error {
    Error::Corrupt("unexpected number of results of a set of reads".to_owned())
}

pub(super) fn open_call(row: &Row) -> Result<OpenCall, Error> {
    Ok(OpenCall {
        id: CallId::new(get::<String>(row, "call_id")?),
        tool: get(row, "tool_name")?,
        step: count(row, "step")?,
        position: count(row, "ord")?,
        results: MessageId::new(get::<String>(row, "result_message_id")?),
        waits_for: waits_for(get(row, "status")?, get(row, "edited")?)?,
        deadline: get(row, "deadline")?,
        timeout: duration(row, "timeout")?,
        request: get(row, "request")?,
        executor: enum_value(row, "executor")?,
    })
}

/// Decodes the columns of the fragment `session_columns`, and the time of the read.
pub(super) fn seen_session(row: &Row) -> Result<SessionSnapshot, Error> {
    let takeovers: i16 = get(row, "takeovers")?;
    let session = Session {
        state: enum_value(row, "state")?,
        fence: Fence { epoch: get(row, "epoch")?, op: get(row, "op")? },
        written_by: get(row, "written_by")?,
        owner: get(row, "owner")?,
        lease_is_over: get(row, "lease_is_over")?,
        takeovers: u32::try_from(takeovers).unwrap_or_default(),
        cancel: cancel_request(row)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        step: count(row, "step")?,
        attempt: count(row, "attempt")?,
        open_calls: count(row, "open_calls")?,
        wake_at: get(row, "tool_deadline")?,
        turn_deadline: get(row, "turn_deadline")?,
        next_seq: Seq(get(row, "next_seq")?),
        revision: get(row, "revision")?,
        counters: counters(row)?,
        anchor: anchor(row)?,
        growth: get(row, "growth")?,
        context_version: get(row, "context_version")?,
        compaction: get::<Option<&str>>(row, "compaction")?.map(json).transpose()?.map(running),
        queue: get::<Option<&str>>(row, "queue")?
            .map_or_else(|| Ok(Vec::new()), json)?
            .into_iter()
            .map(waiting_message)
            .collect::<Result<_, _>>()?,
    };
    Ok(SessionSnapshot { version: Version(get(row, "version")?), session, now: get(row, "now")? })
}

/// The running compaction, in the format of the fragment.
type RunningRow = (String, i64, bool);

fn running((id, context_version, lease_is_over): RunningRow) -> RunningCompaction {
    RunningCompaction { id: CompactionId::new(id), context_version, lease_is_over }
}

/// A queued message, in the format of the fragment.
type WaitingRow = (String, i16, bool, bool, Option<String>);

fn waiting_message((message, number, starts_turn, of_execute, expires_at): WaitingRow) -> Result<QueuedMessage, Error> {
    Ok(QueuedMessage {
        message: MessageId::new(message),
        delivery: Delivery::of_number(number)?,
        starts_turn,
        of_execute,
        expires_at: expires_at
            .map(|at| at.parse())
            .transpose()
            .map_err(|error: jiff::Error| Error::Corrupt(error.to_string()))?,
    })
}

pub(super) fn cancel_request(row: &Row) -> Result<Option<CancelRequest>, Error> {
    let mode: i16 = get(row, "cancel")?;
    if mode == 0 {
        return Ok(None);
    }
    Ok(Some(CancelRequest {
        cause: enum_value(row, "cancel_cause")?,
        reason: get(row, "cancel_reason")?,
        rollback: mode == ROLLBACK,
    }))
}

/// The values of `session_run.cancel`, `cancel_cause` and `cancel_reason`.
pub(super) fn cancel_columns(cancel: Option<&CancelRequest>) -> (i16, i16, &str) {
    let Some(CancelRequest { cause, reason, rollback }) = cancel else {
        return (0, 0, "");
    };
    let mode = if *rollback { ROLLBACK } else { STOP };
    (mode, cause.number(), reason)
}
