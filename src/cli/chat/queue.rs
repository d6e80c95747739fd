//! Messages of the person's that the server has and no turn took so far, as the answers and the
//! events tell.

use std::collections::BTreeSet;

use crate::pb::{self, event::Payload};

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiting: BTreeSet<String>,
    /// Those that ended. An event may be heard before the answer.
    ended: BTreeSet<String>,
}

impl Waiting {
    /// The server has a message.
    pub(super) fn add(&mut self, message: &pb::QueuedMessage) {
        let id = &message.queued_message_id;
        if message.state() == pb::QueuedMessageState::Pending && !self.ended.contains(id) {
            self.waiting.insert(id.clone());
        }
    }

    /// Notes what an event tells.
    pub(super) fn hear(&mut self, event: &pb::Event) {
        let ids: Vec<&String> = match &event.payload {
            Some(Payload::MessagesApplied(it)) => {
                it.messages.iter().map(|it| &it.queued_message_id).collect()
            }
            Some(Payload::QueuedMessageCancelled(it)) => vec![&it.queued_message_id],
            Some(Payload::QueuedMessageExpired(it)) => vec![&it.queued_message_id],
            Some(Payload::QueuedMessageDropped(it)) => vec![&it.queued_message_id],
            Some(_) | None => return,
        };
        for id in ids {
            self.waiting.remove(id);
            self.ended.insert(id.clone());
        }
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// From here on those that wait are handled elsewhere.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, state: pb::QueuedMessageState) -> pb::QueuedMessage {
        pb::QueuedMessage {
            queued_message_id: id.to_owned(),
            state: state.into(),
            ..pb::QueuedMessage::default()
        }
    }

    #[test]
    fn a_queued_message_that_ends_is_not_pending_whichever_event_arrives_first() {
        let applied = |id: &str| {
            let messages = vec![pb::AppliedMessage {
                queued_message_id: id.to_owned(),
                ..Default::default()
            }];
            let payload = Payload::MessagesApplied(pb::MessagesApplied {
                messages,
                ..Default::default()
            });
            pb::Event {
                payload: Some(payload),
                ..pb::Event::default()
            }
        };
        let pending = pb::QueuedMessageState::Pending;
        let mut waiting = Waiting::default();
        waiting.add(&message("a", pending));
        waiting.add(&message("b", pending));
        waiting.add(&message("c", pb::QueuedMessageState::Applied));
        assert_eq!(waiting.count(), 2);
        waiting.hear(&applied("a"));
        waiting.hear(&applied("d"));
        waiting.add(&message("d", pending));
        assert_eq!(waiting.count(), 1);
        waiting.forget();
        assert_eq!(waiting.count(), 0);
    }
}
