//! Messages that a host appends by itself: after the transcript of an idle session, with the calls that they make
//! and answer.

use super::{Session, SessionState, change::Change, import_rows::Imported, rows::Rows};
use crate::model::Fence;

#[cfg(test)]
mod tests;

/// Messages to be appended.
#[derive(Debug, Clone, Copy)]
pub struct Import<'a> {
    /// The fence that was seen.
    pub fence: Fence,
    /// The version of the context that was seen.
    pub context_version: i64,
    /// The messages in order.
    pub rows: &'a Rows,
    /// What comes with them.
    pub with: Imported<'a>,
    /// Calls that are open after them.
    pub open_calls: u32,
}

/// Appends messages. The fence and the turn stay as they are. `None`: a turn is running, or the session has changed since it
/// was read.
pub fn import<'a>(session: &Session, import: &Import<'a>) -> Option<Change<'a>> {
    let unmoved =
        session.context_version == import.context_version && session.fence == import.fence;
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
