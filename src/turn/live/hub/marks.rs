//! The events that readers of a session have seen, until they are compared with the database.

use std::collections::VecDeque;

use crate::{
    model::Seq,
    store::lost_commits::{SeenEvent, SeenEventCheck},
};

/// Most events that are kept for the comparison. The oldest are dropped.
const MAX_MARKS: usize = 64;

/// The newest events that were seen, by ascending seq.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<SeenEvent>);

impl Marks {
    /// Adds an event that was seen. An event that is no newer than the newest one is covered by it.
    pub(super) fn add(&mut self, mark: SeenEvent) {
        if self.0.back().is_some_and(|newest| newest.seq >= mark.seq) || mark.seq == Seq(0) {
            return;
        }
        if self.0.len() == MAX_MARKS {
            self.0.pop_front();
        }
        self.0.push_back(mark);
    }

    /// The events to compare: those that were seen, and the newest known seq of the session.
    pub(super) fn all(&self, newest: Seq) -> Vec<SeenEvent> {
        let known = self.0.back().is_some_and(|mark| mark.seq >= newest) || newest == Seq(0);
        let newest = (!known).then_some(SeenEvent { seq: newest, at: None });
        self.0.iter().copied().chain(newest).collect()
    }

    /// Applies the result of comparing the marks in `asked` with the database. Of the compared
    /// events, only the newest is kept, and compared again.
    pub(super) fn compared(&mut self, asked: &[SeenEvent], found: &[(Seq, SeenEventCheck)]) {
        let Some(newest) = asked.last() else { return };
        self.add(*newest);
        self.0.retain(|mark| mark.seq >= newest.seq);
        for mark in self.0.iter_mut().filter(|mark| mark.at.is_none()) {
            mark.at = found.iter().find_map(|(seq, verdict)| match verdict {
                SeenEventCheck::Written(at) if *seq == mark.seq => Some(*at),
                SeenEventCheck::Written(_) | SeenEventCheck::Lost(_) => None,
            });
        }
    }

    /// Removes all marks, after events were lost.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn mark(seq: i64, at: Option<i64>) -> SeenEvent {
        SeenEvent { seq: Seq(seq), at: at.map(|at| Timestamp::from_second(at).unwrap()) }
    }

    #[test]
    fn each_mark_is_compared_once_and_the_newest_again() {
        let mut marks = Marks::default();
        assert_eq!(marks.all(Seq(0)), []);
        [mark(3, Some(30)), mark(2, Some(20)), mark(5, Some(50))].into_iter().for_each(|mark| marks.add(mark));
        let asked = marks.all(Seq(7));
        assert_eq!(asked, [mark(3, Some(30)), mark(5, Some(50)), mark(7, None)]);
        marks.add(mark(9, Some(90)));
        let written = SeenEventCheck::Written(Timestamp::from_second(70).unwrap());
        marks.compared(&asked, &[(Seq(7), written)]);
        assert_eq!(marks.all(Seq(9)), [mark(9, Some(90))], "what was seen meanwhile stays to be compared");
        let mut marks = Marks::default();
        marks.compared(&[mark(7, None)], &[(Seq(7), written)]);
        assert_eq!(marks.all(Seq(7)), [mark(7, Some(70))]);
        marks.clear();
        assert_eq!(marks.all(Seq(0)), []);
    }

    #[test]
    fn remembered_marks_are_bounded() {
        let mut marks = Marks::default();
        (1..=100).for_each(|seq| marks.add(mark(seq, Some(seq))));
        let all = marks.all(Seq(100));
        assert_eq!(
            (all.len(), all[0].seq, all[MAX_MARKS - 1].seq),
            (MAX_MARKS, Seq(100 - MAX_MARKS as i64 + 1), Seq(100))
        );
    }
}
