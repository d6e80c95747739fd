//! Decodes columns: numbers in the database to enum values of the model.

use tokio_postgres::{Row, types::FromSql};

use super::Error;
use crate::{
    model::{Category, Role, SessionId, SessionKey, TenantId, TurnState},
    session::SessionState,
};

/// A column value. Fails if the column is missing or has another type.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(|error| Error::Corrupt(error.to_string()))
}

/// A column value that is a count.
pub(super) fn count(row: &Row, column: &str) -> Result<u32, Error> {
    let value: i32 = get(row, column)?;
    u32::try_from(value).map_err(|_| Error::Corrupt(format!("{column} is negative: {value}")))
}

/// The session of a row.
pub(super) fn session_key(row: &Row) -> Result<SessionKey, Error> {
    Ok(SessionKey::new(
        TenantId::new(get::<String>(row, "tenant_id")?),
        SessionId::new(get::<String>(row, "session_id")?),
    ))
}

pub(super) fn state_number(state: SessionState) -> i16 {
    match state {
        SessionState::Idle => 0,
        SessionState::Running => 1,
        SessionState::AwaitingTools => 2,
        SessionState::Deleted => 3,
    }
}

pub(super) fn session_state(number: i16) -> Result<SessionState, Error> {
    match number {
        0 => Ok(SessionState::Idle),
        1 => Ok(SessionState::Running),
        2 => Ok(SessionState::AwaitingTools),
        3 => Ok(SessionState::Deleted),
        other => Err(Error::Corrupt(format!("unknown session state {other}"))),
    }
}

pub(super) fn role_number(role: Role) -> i16 {
    match role {
        Role::System => 1,
        Role::User => 2,
        Role::Assistant => 3,
        Role::Tool => 4,
    }
}

pub(super) fn role(number: i16) -> Result<Role, Error> {
    match number {
        1 => Ok(Role::System),
        2 => Ok(Role::User),
        3 => Ok(Role::Assistant),
        4 => Ok(Role::Tool),
        other => Err(Error::Corrupt(format!("unknown role {other}"))),
    }
}

pub(super) fn category_number(category: Category) -> i16 {
    match category {
        Category::User => 1,
        Category::Assistant => 2,
        Category::Reasoning => 3,
        Category::ToolCalls => 4,
        Category::ToolResults => 5,
        Category::Media => 6,
        Category::Summary => 7,
        Category::Pinned => 8,
    }
}

pub(super) fn category(number: i16) -> Result<Category, Error> {
    match number {
        1 => Ok(Category::User),
        2 => Ok(Category::Assistant),
        3 => Ok(Category::Reasoning),
        4 => Ok(Category::ToolCalls),
        5 => Ok(Category::ToolResults),
        6 => Ok(Category::Media),
        7 => Ok(Category::Summary),
        8 => Ok(Category::Pinned),
        other => Err(Error::Corrupt(format!("unknown category {other}"))),
    }
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
