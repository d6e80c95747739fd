//! A new revision of a session's configuration. It applies to everything that starts from now on, even in a running
//! turn.

use super::{Session, SessionState, change::Change, config_rows::NewConfig};
use crate::model::Payload;

#[cfg(test)]
mod tests;

/// A configuration that replaces the current one.
#[derive(Debug, Clone, Copy)]
pub struct NewRevision<'a> {
    pub new: NewConfig<'a>,
    /// The revision that it is based on.
    pub from: i64,
    /// The events that describe the change.
    pub events: &'a [Payload],
}

/// Replaces the configuration. The owner of a running turn is not affected. The last measurement stays valid: it
/// includes its model, and the size of its system prompt and tools. Returns `None` if the session is deleted, or the
/// current revision is not the one that the configuration is based on.
pub fn update<'a>(session: &Session, revision: &NewRevision<'a>) -> Option<Change<'a>> {
    if session.state == SessionState::Deleted || session.revision != revision.from {
        return None;
    }
    let mut change = Change::of(session);
    change.turn_id = None;
    change.session.revision += 1;
    change.config = Some(revision.new);
    change.is_use = true;
    for payload in revision.events {
        let is_switch = matches!(payload, Payload::ModelSwitched(_));
        change.append_event(payload, is_switch.then_some(session.counters.messages.into()));
    }
    Some(change)
}
