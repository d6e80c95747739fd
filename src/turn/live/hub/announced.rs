//! Queued messages, as announced to the readers of a session on this replica. Each reader is sent
//! each of the newest ones once.

use std::collections::VecDeque;

use crate::model::{Delivery, MessageId, TurnId};

/// Most announcements kept for slow readers. The queue in the database is authoritative.
const MAX_ANNOUNCEMENTS: usize = 64;

/// A queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The turn that was running, if any.
    pub turn: Option<TurnId>,
    pub message: MessageId,
    /// Position in the queue, from 1.
    pub position: u32,
    pub delivery: Delivery,
}

/// The newest announcements, and the total number.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    recent: VecDeque<Announcement>,
    total: usize,
}

impl Announcements {
    pub(super) fn add(&mut self, announced: Announcement) {
        self.recent.push_back(announced);
        self.total += 1;
        if self.recent.len() > MAX_ANNOUNCEMENTS {
            self.recent.pop_front();
        }
    }

    /// The total number of announcements.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The announcements after the first `heard`, as far as they are kept.
    pub(super) fn after(&self, heard: usize) -> Vec<Announcement> {
        let new = (self.total - heard.min(self.total)).min(self.recent.len());
        self.recent.iter().skip(self.recent.len() - new).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_remembered_announcements_since_its_last_look() {
        let mut all = Announcements::default();
        for position in 1..=100 {
            let message = MessageId::new(position.to_string());
            all.add(Announcement { turn: None, message, position, delivery: Delivery::Asap });
        }
        let heard = |from| all.after(from).iter().map(|it| it.position).collect::<Vec<_>>();
        assert_eq!(heard(98), [99, 100]);
        assert_eq!(heard(100), Vec::<u32>::new());
        assert_eq!(heard(0), (37..=100).collect::<Vec<_>>());
    }
}
