//! Tracks the response text on the screen while a message is received again.
//!
//! Printed text cannot be taken back. When a message becomes void and its step is repeated, the new message is
//! compared with the text on the screen: only text beyond it is printed. If the new message differs, it is
//! printed from its beginning.

/// The kinds of streamed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// What to print for received text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScreenUpdate {
    /// Nothing, because the screen already shows it.
    AlreadyShown,
    /// This text.
    New(String),
    /// The whole message, because the screen shows something else.
    Restart(Vec<(Kind, String)>),
}

/// The text on the screen, and the message that is compared with it.
#[derive(Debug, Default)]
pub(super) struct ScreenText {
    shown: String,
    /// Bytes of `shown` that the message has repeated.
    at: usize,
    /// The message so far.
    message: Vec<(Kind, String)>,
}

impl ScreenText {
    /// Appends text to the message.
    pub(super) fn add(&mut self, kind: Kind, words: &str) -> ScreenUpdate {
        match self.message.last_mut() {
            Some((last, text)) if *last == kind => text.push_str(words),
            Some(_) | None => self.message.push((kind, words.to_owned())),
        }
        let stands = &self.shown[self.at..];
        if stands.starts_with(words) {
            self.at += words.len();
            ScreenUpdate::AlreadyShown
        } else if let Some(new) = words.strip_prefix(stands) {
            self.shown.push_str(new);
            self.at = self.shown.len();
            ScreenUpdate::New(new.to_owned())
        } else {
            self.anew()
        }
    }

    /// Ends the message.
    pub(super) fn finish(&mut self) -> ScreenUpdate {
        if self.at == self.shown.len() { ScreenUpdate::AlreadyShown } else { self.anew() }
    }

    /// Discards the message; another one follows.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        self.message.clear();
    }

    /// Whether nothing was shown.
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    fn anew(&mut self) -> ScreenUpdate {
        self.shown = self.message.iter().map(|(_, text)| text.as_str()).collect();
        self.at = self.shown.len();
        ScreenUpdate::Restart(self.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replayed_message_continues_where_the_screen_stopped() {
        let mut tape = ScreenText::default();
        assert_eq!(tape.add(Kind::Text, "one two"), ScreenUpdate::New("one two".to_owned()));
        tape.rewind();
        assert_eq!(tape.add(Kind::Text, "one"), ScreenUpdate::AlreadyShown);
        assert_eq!(tape.add(Kind::Text, " two three"), ScreenUpdate::New(" three".to_owned()));
        assert_eq!(tape.add(Kind::Text, " four"), ScreenUpdate::New(" four".to_owned()));
        assert_eq!(tape.finish(), ScreenUpdate::AlreadyShown);
    }

    #[test]
    fn another_message_is_printed_from_its_beginning() {
        let mut tape = ScreenText::default();
        tape.add(Kind::Reasoning, "hm ");
        tape.add(Kind::Text, "one two");
        tape.rewind();
        assert_eq!(tape.add(Kind::Reasoning, "hm "), ScreenUpdate::AlreadyShown);
        let anew = vec![(Kind::Reasoning, "hm ".to_owned()), (Kind::Text, "one or".to_owned())];
        assert_eq!(tape.add(Kind::Text, "one or"), ScreenUpdate::Restart(anew));
        assert_eq!(tape.add(Kind::Text, " two"), ScreenUpdate::New(" two".to_owned()));
    }

    #[test]
    fn a_message_that_ends_early_is_printed_from_its_beginning() {
        let mut tape = ScreenText::default();
        tape.add(Kind::Text, "one two");
        tape.rewind();
        assert_eq!(tape.add(Kind::Text, "one"), ScreenUpdate::AlreadyShown);
        assert_eq!(tape.finish(), ScreenUpdate::Restart(vec![(Kind::Text, "one".to_owned())]));
    }
}
