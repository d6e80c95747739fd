//! Reads a session before a change of it is decided, and encodes its cancel request.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    counters::counters,
    idempotency::{Request, StoredRequest, stored_request},
    named_parameters::Named,
    pipeline::Param,
    queue_numbers::delivery,
    row::{count, get, session_state},
    rows::Key,
    tool_call::{executor, waits_for},
};
use crate::{
    model::{CallId, CancelCause, CompactionId, Fence, MessageId, Seq, SessionKey, TurnId, command::Idempotency},
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

/// Read before anything else: if a commit then finds the session unchanged, the other data is unchanged too.
pub(super) static SESSION: LazyLock<Named> = named_alone!("sql/commit/seen.sql");

/// Read after the session.
pub(super) static OPEN_CALLS: LazyLock<Named> = named_alone!("sql/answers/open.sql");

/// The value of `session_run.cancel` for a turn that must stop.
const STOP: i16 = 1;
/// The value of `session_run.cancel` for a turn that must stop and be rolled back.
const ROLLBACK: i16 = 2;

impl Store {
    /// Reads a session. Returns `None` if it does not exist.
    pub(super) async fn read_session(&self, key: &SessionKey) -> Result<Option<SessionSnapshot>, Error> {
        let key = Key::from(key);
        let values = [("tenant", &key.tenant as Param<'_>), ("session", &key.session)];
        let rows = self.database.read_named(&SESSION, &values).await?;
        rows.first().map(seen_session).transpose()
    }

    /// Reads a session and the open calls of its running turn, in the order in which the model made them.
    pub(super) async fn read_session_and_calls(
        &self,
        key: &SessionKey,
    ) -> Result<Option<(SessionSnapshot, Vec<OpenCall>)>, Error> {
        let key = Key::from(key);
        let values = [("tenant", &key.tenant as Param<'_>), ("session", &key.session)];
        let queries = [SESSION.query(&values)?, OPEN_CALLS.query(&values)?];
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
        Idempotency { request, hash }: &Idempotency,
    ) -> Result<(Option<SessionSnapshot>, Option<StoredRequest>), Error> {
        let Some(request) = request else {
            return Ok((self.read_session(key).await?, None));
        };
        let key = Key::from(key);
        let values = [("tenant", &key.tenant as Param<'_>), ("session", &key.session)];
        let known = Request::new(&key, Some(request.as_str()), hash, "");
        let queries = [SESSION.query(&values)?, known.read()];
        let answers = self.database.read_together(&queries).await?;
        let first = |at: usize| answers.get(at).and_then(|rows| rows.first());
        Ok((first(0).map(seen_session).transpose()?, first(1).map(stored_request).transpose()?))
    }
}

pub(super) fn seen_session(row: &Row) -> Result<SessionSnapshot, Error> {
    let (version, session) = session_row(row)?;
    Ok(SessionSnapshot { version, session, now: get(row, "now")? })
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
        timeout: Duration::try_from_secs_f64(get(row, "timeout")?).unwrap_or_default(),
        request: get(row, "request")?,
        executor: executor(get(row, "executor")?)?,
    })
}

/// Decodes the columns of the fragment `session_columns`.
pub(super) fn session_row(row: &Row) -> Result<(Version, Session), Error> {
    let takeovers: i16 = get(row, "takeovers")?;
    let session = Session {
        state: session_state(get(row, "state")?)?,
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
        compaction: json::<RunningRow>(row, "compaction")?.map(running),
        queue: json::<Vec<WaitingRow>>(row, "queue")?
            .unwrap_or_default()
            .into_iter()
            .map(waiting_message)
            .collect::<Result<_, _>>()?,
    };
    Ok((Version(get(row, "version")?), session))
}

fn json<T: DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, Error> {
    let text = get::<Option<&str>>(row, column)?;
    let value = text.map(serde_json::from_str).transpose();
    value.map_err(|error| Error::Corrupt(error.to_string()))
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
        delivery: delivery(number)?,
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
    let cause = match get::<i16>(row, "cancel_cause")? {
        1 => CancelCause::Requested,
        2 => CancelCause::Interrupted,
        3 => CancelCause::Disconnected,
        4 => CancelCause::SessionDeleted,
        other => return Err(Error::Corrupt(format!("unknown cancel cause {other}"))),
    };
    Ok(Some(CancelRequest { cause, reason: get(row, "cancel_reason")?, rollback: mode == ROLLBACK }))
}

/// The values of `session_run.cancel`, `cancel_cause` and `cancel_reason`.
pub(super) fn cancel_columns(cancel: Option<&CancelRequest>) -> (i16, i16, &str) {
    let Some(CancelRequest { cause, reason, rollback }) = cancel else {
        return (0, 0, "");
    };
    let mode = if *rollback { ROLLBACK } else { STOP };
    (mode, cause_number(*cause), reason)
}

/// The value of `session_run.cancel_cause`.
pub(super) fn cause_number(cause: CancelCause) -> i16 {
    match cause {
        CancelCause::Requested => 1,
        CancelCause::Interrupted => 2,
        CancelCause::Disconnected => 3,
        CancelCause::SessionDeleted => 4,
    }
}
