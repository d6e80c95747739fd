//! Detects missing and reordered events from their sequence numbers. Some services send no numbers,
//! or restart them with each item.

/// The sequence numbers received so far.
#[derive(Debug, Default)]
pub(super) struct SequenceCheck {
    last: Option<Numbered>,
    /// An event had no number, or not the next one.
    gaps: bool,
}

#[derive(Debug, Clone, Copy)]
struct Numbered {
    number: i64,
    output: i64,
}

impl SequenceCheck {
    /// Records an event about the item `output`. Returns `false` if the event follows a later event
    /// about the same item.
    pub(super) fn record(&mut self, number: Option<i64>, output: i64) -> bool {
        let Some(number) = number else {
            self.gaps = true;
            return true;
        };
        let last = self.last.replace(Numbered { number, output });
        let Some(last) = last else {
            return true;
        };
        self.gaps |= last.number.checked_add(1) != Some(number);
        number >= last.number || output != last.output
    }

    /// Whether no event is missing, repeated or reordered.
    pub(super) fn is_whole(&self) -> bool {
        self.last.is_some() && !self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_missing_events_and_another_order() {
        let item =
            |numbers: &[i64]| -> Vec<(Option<i64>, i64)> { numbers.iter().map(|number| (Some(*number), 0)).collect() };
        let unnumbered = vec![(None, 0), (None, 0)];
        let again = vec![(Some(0), 0), (Some(1), 0), (Some(0), 1), (Some(1), 1)];
        let table = [
            ("as they came", item(&[0, 1, 2]), true, true),
            ("from another number on", item(&[7, 8]), true, true),
            ("one is missing", item(&[0, 2]), true, false),
            ("one came twice", item(&[0, 1, 1]), true, false),
            ("another order", item(&[0, 2, 1]), false, false),
            ("all the same", item(&[0, 0, 0]), true, false),
            ("none", unnumbered, true, false),
            ("anew for each item", again, true, false),
        ];
        for (what, events, in_order, is_whole) in table {
            let mut order = SequenceCheck::default();
            let seen = events.iter().map(|(number, output)| order.record(*number, *output));
            let seen: Vec<bool> = seen.collect();
            assert_eq!(seen.iter().all(|it| *it), in_order, "{what}");
            assert_eq!(order.is_whole(), is_whole, "{what}");
        }
    }
}
