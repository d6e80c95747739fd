//! Tracks queued messages of the user that no turn has taken yet, from responses and events.

use std::collections::BTreeSet;

use contextd_proto::{self as pb, event::Payload};

/// The queued messages that no turn has taken yet.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    waiting: BTreeSet<String>,
    /// Messages that left the queue. Their event may arrive before the response to the enqueue request.
    ended: BTreeSet<String>,
}

impl PendingMessages {
    /// Adds a message that the server accepted.
    pub(super) fn add(&mut self, message: &pb::QueuedMessage) {
        let id = &message.queued_message_id;
        if message.state() == pb::QueuedMessageState::Pending && !self.ended.contains(id) {
            self.waiting.insert(id.clone());
        }
    }

    /// Records what an event reports.
    pub(super) fn record_event(&mut self, event: &pb::Event) {
        let ids: Vec<&String> = match &event.payload {
            Some(Payload::MessagesApplied(it)) => it.messages.iter().map(|it| &it.queued_message_id).collect(),
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

    /// The number of queued messages.
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets the queued messages, because the next turn takes them.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, state: pb::QueuedMessageState) -> pb::QueuedMessage {
        pb::QueuedMessage { queued_message_id: id.to_owned(), state: state.into(), ..pb::QueuedMessage::default() }
    }

    #[test]
    fn a_queued_message_that_ends_is_not_pending_whichever_event_arrives_first() {
        let applied = |id: &str| {
            let messages = vec![pb::AppliedMessage { queued_message_id: id.to_owned(), ..Default::default() }];
            let payload = Payload::MessagesApplied(pb::MessagesApplied { messages, ..Default::default() });
            pb::Event { payload: Some(payload), ..pb::Event::default() }
        };
        let pending = pb::QueuedMessageState::Pending;
        let mut waiting = PendingMessages::default();
        waiting.add(&message("a", pending));
        waiting.add(&message("b", pending));
        waiting.add(&message("c", pb::QueuedMessageState::Applied));
        assert_eq!(waiting.count(), 2);
        waiting.record_event(&applied("a"));
        waiting.record_event(&applied("d"));
        waiting.add(&message("d", pending));
        assert_eq!(waiting.count(), 1);
        waiting.forget();
        assert_eq!(waiting.count(), 0);
    }
}
