//! A new configuration of a session: a revision that is in force for whatever begins from now on, also in a
//! turn that runs.

use super::{Session, SessionState, change::Change, config_rows::NewConfig};
use crate::model::Payload;

#[cfg(test)]
mod tests;

/// A configuration that is to come in force.
#[derive(Debug, Clone, Copy)]
pub struct NewRevision<'a> {
    /// The configuration.
    pub new: NewConfig<'a>,
    /// The revision that it was made from.
    pub from: i64,
    /// The events about it.
    pub events: &'a [Payload],
}

/// Puts a new configuration in force. The owner of a running turn goes on undisturbed. What was measured
/// stays: it names its model, and the size that its system prompt and tools had. `None`: the session is deleted,
/// or another revision is in force than the one that this was made from.
pub fn update<'a>(session: &Session, revision: &NewRevision<'a>) -> Option<Change<'a>> {
    if session.state == SessionState::Deleted || session.revision != revision.from {
        return None;
    }
    let mut change = Change::of(session);
    change.about = None;
    change.session.revision += 1;
    change.config = Some(revision.new);
    change.is_use = true;
    for payload in revision.events {
        let is_switch = matches!(payload, Payload::ModelSwitched(_));
        change.append_event(
            payload,
            is_switch.then_some(session.counters.messages.into()),
        );
    }
    Some(change)
}
