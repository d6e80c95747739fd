//! Decodes columns.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::{Row, types::FromSql};

use super::Error;
use crate::model::{Seq, SessionId, SessionKey, TenantId, TurnState};

/// A column value. Fails if the column is missing or has another type.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(|error| Error::Corrupt(error.to_string()))
}

/// A column value that is a count.
pub(super) fn count(row: &Row, column: &str) -> Result<u32, Error> {
    let value: i32 = get(row, column)?;
    u32::try_from(value).map_err(|_| Error::Corrupt(format!("{column} is negative: {value}")))
}

/// A column value that is a duration in seconds. A negative one counts as zero.
pub(super) fn duration(row: &Row, column: &str) -> Result<Duration, Error> {
    Ok(Duration::try_from_secs_f64(get(row, column)?).unwrap_or_default())
}

/// The newest seq of the session of a row.
pub(super) fn last_seq(row: &Row) -> Result<Seq, Error> {
    Ok(Seq(get::<i64>(row, "next_seq")? - 1))
}

/// The tenant of a row.
pub(super) fn tenant_id(row: &Row) -> Result<TenantId, Error> {
    Ok(TenantId::new(get::<String>(row, "tenant_id")?))
}

/// The session of a row.
pub(super) fn session_key(row: &Row) -> Result<SessionKey, Error> {
    Ok(SessionKey::new(tenant_id(row)?, SessionId::new(get::<String>(row, "session_id")?)))
}

/// Decodes a row of another table, which the database encoded as JSON.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Corrupt(error.to_string()))
}

/// A count as a column value, limited to the maximum of its type.
pub(super) fn signed(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// The value of `turns.state` for a turn that has ended. The session row has the state of a running turn.
pub(super) fn ended_number(state: TurnState) -> i16 {
    match state {
        TurnState::Running | TurnState::AwaitingTools => 1,
        TurnState::Completed => 3,
        TurnState::Cancelled => 4,
        TurnState::Failed => 5,
    }
}

/// The state of a turn, from `turns.state` and, while it is running, from the session row.
pub(super) fn turn_state(turn: i16, run: i16) -> Result<TurnState, Error> {
    match (turn, run) {
        (1, 2) => Ok(TurnState::AwaitingTools),
        (1, _) => Ok(TurnState::Running),
        (3, _) => Ok(TurnState::Completed),
        (4, _) => Ok(TurnState::Cancelled),
        (5, _) => Ok(TurnState::Failed),
        (other, _) => Err(Error::Corrupt(format!("unknown turn state {other}"))),
    }
}
