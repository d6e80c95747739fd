//! Merges several queued messages into one: all parts are kept in order, and media keep their position in the text.

use crate::model::{InputMessage, Part, Role};

/// The separator between two messages: a blank line.
const SEPARATOR: &str = "\n\n";

/// Merges messages into one user message. Returns `None` if there are none. A single message is returned unchanged.
/// With several messages each gets a prefix; prefixes and separators are separate parts, so that the users' own text
/// can be told from added text.
pub fn coalesce(messages: Vec<InputMessage>) -> Option<InputMessage> {
    let many = messages.len();
    let pinned = messages.iter().any(|message| message.pinned);
    let mut messages = messages.into_iter();
    if many <= 1 {
        return messages.next();
    }
    let mut parts = Vec::new();
    for (at, message) in messages.enumerate() {
        if at > 0 {
            parts.push(Part::text(SEPARATOR));
        }
        parts.push(Part::text(prefix(at, many)));
        parts.extend(message.parts);
    }
    // The labels are kept with the queued messages.
    Some(InputMessage { pinned, ..InputMessage::new(Role::User, parts) })
}

/// The prefix of a message if there are several.
fn prefix(at: usize, many: usize) -> String {
    match (many, at) {
        (2, 0) => "First: ".to_owned(),
        (2, _) => "Also: ".to_owned(),
        (_, at) => format!("[{}]: ", at + 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Content, Media, media::Source};

    fn message(parts: &[&str]) -> InputMessage {
        let texts = parts.iter().map(|part| Part::text(*part)).collect();
        InputMessage { metadata: [("of".to_owned(), parts.concat())].into(), ..InputMessage::new(Role::User, texts) }
    }

    fn texts(message: &InputMessage) -> Vec<&str> {
        message.parts.iter().filter_map(|part| part.content.as_text()).collect()
    }

    /// Row D8
    #[test]
    fn one_queued_message_is_unchanged_and_several_get_an_introduction() {
        let check = |said: &[&[&str]], expected: &[&str]| {
            let merged = coalesce(said.iter().map(|parts| message(parts)).collect());
            assert_eq!(merged.as_ref().map(texts).unwrap_or_default(), expected, "{said:?}");
        };
        check(&[], &[]);
        check(&[&["a"]], &["a"]);
        check(&[&["a"], &["b"]], &["First: ", "a", "\n\n", "Also: ", "b"]);
        check(
            &[&["a", "image"], &["file"], &["b"]],
            &["[1]: ", "a", "image", "\n\n", "[2]: ", "file", "\n\n", "[3]: ", "b"],
        );
        let twelve: Vec<String> = (1..=12).map(|n| format!("m{n}")).collect();
        let said: Vec<InputMessage> = twelve.iter().map(|text| message(&[text])).collect();
        let merged = coalesce(said).unwrap();
        assert_eq!(texts(&merged)[33..], ["[12]: ", "m12"]);
    }

    #[test]
    fn coalescing_keeps_labels_of_one_message_and_pins_all_if_one_is_pinned() {
        assert_eq!(coalesce(vec![message(&["a"])]), Some(message(&["a"])));
        let pinned = InputMessage { pinned: true, ..message(&["b"]) };
        let merged = coalesce(vec![message(&["a"]), pinned]).unwrap();
        assert!(merged.pinned && merged.metadata.is_empty());
    }

    /// A text, or a medium with this name.
    fn part() -> impl Strategy<Value = Part> {
        ("[a-z]{1,5}", any::<bool>()).prop_map(|(name, is_text)| {
            if is_text {
                return Part::text(name);
            }
            let source = Source::Url(format!("https://example.org/{name}"));
            Part::new(Content::Media(Media { media_type: "image/png".to_owned(), source, filename: name }))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::context::testing::CASES))]

        /// Row D8
        #[test]
        fn coalescing_keeps_all_parts_in_order(said in proptest::collection::vec(proptest::collection::vec(part(), 1..4), 0..15)) {
            let messages = said.iter().map(|parts| InputMessage { parts: parts.clone(), ..message(&[]) }).collect();
            let merged = coalesce(messages).map(|merged| merged.parts).unwrap_or_default();
            let mut rest = merged.as_slice();
            for (at, parts) in said.iter().enumerate() {
                let added = match (said.len(), at) {
                    (1, _) => 0,
                    (_, 0) => 1,
                    (_, _) => 2,
                };
                let (introduction, after) = rest.split_at(added);
                prop_assert!(introduction.iter().all(|part| matches!(&part.content, Content::Text(_))));
                let (own, after) = after.split_at(parts.len());
                prop_assert_eq!(own, parts.as_slice(), "each message stands together, its parts untouched");
                rest = after;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
