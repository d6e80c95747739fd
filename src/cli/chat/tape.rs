//! The answer on the screen, and how much of it the message that is being received repeats.
//!
//! What was printed cannot be taken back. When a message becomes void and its step is repeated, the
//! tape is rewound: nothing is printed while the new message repeats what is on the screen, and only
//! what goes beyond it is. If it says something else, it is printed from its beginning.

/// The kinds of words that are streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// What is to be printed for words that were received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing: they are on the screen already.
    Known,
    /// These.
    New(String),
    /// The whole message, since the screen shows something else.
    Other(Vec<(Kind, String)>),
}

/// What is on the screen, and the message that is compared with it.
#[derive(Debug, Default)]
pub(super) struct Tape {
    shown: String,
    /// How much of `shown` the message has repeated, in bytes.
    at: usize,
    /// The message so far.
    said: Vec<(Kind, String)>,
}

impl Tape {
    /// The message goes on with these words.
    pub(super) fn add(&mut self, kind: Kind, words: &str) -> Heard {
        match self.said.last_mut() {
            Some((last, text)) if *last == kind => text.push_str(words),
            Some(_) | None => self.said.push((kind, words.to_owned())),
        }
        let stands = &self.shown[self.at..];
        if stands.starts_with(words) {
            self.at += words.len();
            Heard::Known
        } else if let Some(new) = words.strip_prefix(stands) {
            self.shown.push_str(new);
            self.at = self.shown.len();
            Heard::New(new.to_owned())
        } else {
            self.anew()
        }
    }

    /// The message is complete.
    pub(super) fn finish(&mut self) -> Heard {
        if self.at == self.shown.len() {
            Heard::Known
        } else {
            self.anew()
        }
    }

    /// What was received is void; another message follows.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        self.said.clear();
    }

    /// Nothing was shown.
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    fn anew(&mut self) -> Heard {
        self.shown = self.said.iter().map(|(_, text)| text.as_str()).collect();
        self.at = self.shown.len();
        Heard::Other(self.said.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replayed_message_continues_where_the_screen_stopped() {
        let mut tape = Tape::default();
        assert_eq!(
            tape.add(Kind::Text, "one two"),
            Heard::New("one two".to_owned())
        );
        tape.rewind();
        assert_eq!(tape.add(Kind::Text, "one"), Heard::Known);
        assert_eq!(
            tape.add(Kind::Text, " two three"),
            Heard::New(" three".to_owned())
        );
        assert_eq!(
            tape.add(Kind::Text, " four"),
            Heard::New(" four".to_owned())
        );
        assert_eq!(tape.finish(), Heard::Known);
    }

    #[test]
    fn another_message_is_printed_from_its_beginning() {
        let mut tape = Tape::default();
        tape.add(Kind::Reasoning, "hm ");
        tape.add(Kind::Text, "one two");
        tape.rewind();
        assert_eq!(tape.add(Kind::Reasoning, "hm "), Heard::Known);
        let anew = vec![
            (Kind::Reasoning, "hm ".to_owned()),
            (Kind::Text, "one or".to_owned()),
        ];
        assert_eq!(tape.add(Kind::Text, "one or"), Heard::Other(anew));
        assert_eq!(tape.add(Kind::Text, " two"), Heard::New(" two".to_owned()));
    }

    #[test]
    fn a_message_that_ends_early_is_printed_from_its_beginning() {
        let mut tape = Tape::default();
        tape.add(Kind::Text, "one two");
        tape.rewind();
        assert_eq!(tape.add(Kind::Text, "one"), Heard::Known);
        assert_eq!(
            tape.finish(),
            Heard::Other(vec![(Kind::Text, "one".to_owned())])
        );
    }
}
