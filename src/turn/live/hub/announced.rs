//! Messages that were queued, for those who follow their session here: the newest of them, each
//! shown once to each reader.

use std::collections::VecDeque;

use crate::model::{Delivery, MessageId, TurnId};

/// How many are remembered for a reader that lags by a step; the list of the queue is the truth.
const MOST: usize = 64;

/// A message that was queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// The turn that was running.
    pub turn: Option<TurnId>,
    /// Its id in the queue.
    pub message: MessageId,
    /// Its rank, from 1.
    pub position: u32,
    /// When it is to be taken.
    pub delivery: Delivery,
}

/// What was announced, and how much in all.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    recent: VecDeque<Announced>,
    in_all: usize,
}

impl Announcements {
    pub(super) fn add(&mut self, announced: Announced) {
        self.recent.push_back(announced);
        self.in_all += 1;
        if self.recent.len() > MOST {
            self.recent.pop_front();
        }
    }

    /// How many there were up to now.
    pub(super) fn in_all(&self) -> usize {
        self.in_all
    }

    /// Those after the first `heard`, as far as they are remembered.
    pub(super) fn after(&self, heard: usize) -> Vec<Announced> {
        let new = (self.in_all - heard.min(self.in_all)).min(self.recent.len());
        self.recent
            .iter()
            .skip(self.recent.len() - new)
            .cloned()
            .collect()
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
            all.add(Announced {
                turn: None,
                message,
                position,
                delivery: Delivery::Asap,
            });
        }
        let heard = |from| {
            all.after(from)
                .iter()
                .map(|it| it.position)
                .collect::<Vec<_>>()
        };
        assert_eq!(heard(98), [99, 100]);
        assert_eq!(heard(100), Vec::<u32>::new());
        assert_eq!(heard(0), (37..=100).collect::<Vec<_>>());
    }
}
