//! Appends messages of a host to the transcript of an idle session, with the calls that they contain and answer.

use super::{Session, SessionState, change::Change, import_rows::ImportRows, rows::Rows};
use crate::model::Fence;

#[cfg(test)]
mod tests;

/// Messages to append.
#[derive(Debug, Clone, Copy)]
pub struct Import<'a> {
    /// The fence that the caller read.
    pub fence: Fence,
    /// The version of the context that the caller read.
    pub context_version: i64,
    /// In order.
    pub rows: &'a Rows,
    /// The calls, answers and blobs of the messages.
    pub with: ImportRows<'a>,
    /// Number of calls that are open after the messages.
    pub open_calls: u32,
}

/// Appends messages. The fence and the turn do not change. Returns `None` if a turn is running, or the session has
/// changed since it was read.
pub fn import<'a>(session: &Session, import: &Import<'a>) -> Option<Change<'a>> {
    let unmoved = session.context_version == import.context_version && session.fence == import.fence;
    if session.state != SessionState::Idle || !unmoved {
        return None;
    }
    let mut change = Change::of(session);
    change.add(import.rows);
    change.imports = Some(import.with);
    change.is_use = true;
    let becoming = &mut change.session;
    becoming.extend_context();
    becoming.open_calls = import.open_calls;
    Some(change)
}
