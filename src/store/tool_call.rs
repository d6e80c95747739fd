//! Tool calls as they are stored: their state, and which of them wait for the host.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    known_call::{Batch, CallState, StoredCall},
    named_parameters::Named,
    number::enum_value,
    row::{count, duration, get},
};
use crate::model::{
    CallId, SessionKey, ToolCall, TurnId,
    event::{PendingCall, WaitsFor},
};

/// A call that waits for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// The call in the form in which it is sent to the host.
    pub pending: PendingCall,
    /// Timeout of its result.
    pub timeout: Duration,
    /// Whether its deadline has passed.
    pub overdue: bool,
    /// Whether a cancel of its turn was requested.
    pub cancelled: bool,
}

/// Values of `tool_calls.status`. An open call without a deadline waits for earlier calls; with [`APPROVAL`] it will
/// then request approval.
pub(super) const REQUESTED: i16 = 0;
pub(super) const WAITING: i16 = 1;
pub(super) const APPROVAL: i16 = 2;
pub(super) const ANSWERED: i16 = 3;
pub(super) const TIMED_OUT: i16 = 4;
pub(super) const DENIED: i16 = 5;
pub(super) const CANCELLED: i16 = 6;

/// The ids of all calls the session ever had.
pub(super) const CALL_IDS: &str = "-- store::tool_call::call_ids
    select c.call_id from tool_calls c where c.tenant_id = $1 and c.session_id = $2";

/// The calls with these ids, with the data that an answer needs.
pub(super) static CALLS: LazyLock<Named> = named_alone!("sql/calls/stored.sql");

/// The calls that wait for the host, in the order in which the model made them, except for those that wait for earlier
/// calls.
pub(super) static OPEN: LazyLock<Named> = named_alone!("sql/calls/pending.sql");

impl Store {
    /// Lists the ids of all calls that the session ever had, including those that the model no longer sees.
    pub async fn call_ids(&self, key: &SessionKey) -> Result<Vec<CallId>, Error> {
        let rows = self.database.read_in(key, CALL_IDS, &[]).await?;
        rows.iter().map(|row| Ok(CallId::new(get::<String>(row, "call_id")?))).collect()
    }

    /// Reads the state of these calls. Unknown calls are missing from the result.
    pub async fn calls(&self, key: &SessionKey, calls: &[CallId]) -> Result<BTreeMap<CallId, StoredCall>, Error> {
        let ids: Vec<&str> = calls.iter().map(CallId::as_str).collect();
        known_calls(&self.database.read_named_in(key, &CALLS, &[("calls", &ids)]).await?)
    }

    /// Lists the calls of the running turn that wait for the host, in order.
    pub async fn open_calls(&self, key: &SessionKey) -> Result<Vec<OpenCall>, Error> {
        self.database.read_named_in(key, &OPEN, &[]).await?.iter().map(open_call).collect()
    }
}

pub(super) fn known_calls(rows: &[Row]) -> Result<BTreeMap<CallId, StoredCall>, Error> {
    rows.iter()
        .map(|row| {
            let call = StoredCall {
                turn: TurnId::new(get::<String>(row, "turn_id")?),
                step: count(row, "step")?,
                name: get(row, "tool_name")?,
                state: state(get(row, "status")?, get(row, "asked")?)?,
                edited: get(row, "edited_arguments")?,
                answer: get(row, "answer_hash")?,
                batch: Batch { open: count(row, "open")?, waiting: count(row, "waiting")? },
            };
            Ok((CallId::new(get::<String>(row, "call_id")?), call))
        })
        .collect()
}

fn state(status: i16, asked: bool) -> Result<CallState, Error> {
    match (status, asked) {
        (REQUESTED, _) => Ok(CallState::Requested),
        (APPROVAL, true) => Ok(CallState::AwaitingApproval),
        (WAITING | APPROVAL, _) => Ok(CallState::AwaitingEarlierCalls),
        (ANSWERED, _) => Ok(CallState::Answered),
        (DENIED, _) => Ok(CallState::Denied),
        (TIMED_OUT | CANCELLED, _) => Ok(CallState::Closed),
        (other, _) => Err(Error::Corrupt(format!("unknown tool call status {other}"))),
    }
}

/// What an open call waits for, or will wait for after earlier calls are complete.
pub(super) fn waits_for(status: i16, edited: bool) -> Result<WaitsFor, Error> {
    match status {
        REQUESTED | WAITING => Ok(WaitsFor::Result { edited }),
        APPROVAL => Ok(WaitsFor::Approval),
        other => Err(Error::Corrupt(format!("unexpected status {other} of an open tool call"))),
    }
}

/// The status of a call when its result or approval is requested.
pub(super) fn requested_status(waits_for: WaitsFor) -> i16 {
    match waits_for {
        WaitsFor::Result { edited: _ } => REQUESTED,
        WaitsFor::Approval => APPROVAL,
    }
}

fn open_call(row: &Row) -> Result<OpenCall, Error> {
    let waits_for = waits_for(get(row, "status")?, get(row, "edited")?)?;
    let call = ToolCall {
        id: CallId::new(get::<String>(row, "call_id")?),
        name: get(row, "tool_name")?,
        arguments: get(row, "arguments")?,
    };
    let deadline: Timestamp = get(row, "deadline")?;
    Ok(OpenCall {
        pending: PendingCall { call, deadline, waits_for, executor: enum_value(row, "executor")? },
        timeout: duration(row, "timeout")?,
        overdue: get(row, "overdue")?,
        cancelled: get(row, "cancelled")?,
    })
}
