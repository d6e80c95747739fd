//! Orders messages as chat templates require: many support only alternating user and assistant
//! messages.

use std::borrow::Cow;

use super::{
    dialect::MessageOrder,
    wire::{Assistant, Message, UserContent, UserPart},
};
use crate::{
    model::{RequestDiff, Role},
    provider::inserted::{INSTRUCTIONS, OPENING},
};

/// Text of an assistant message that is inserted between a tool result and a user message.
const ACKNOWLEDGEMENT: &str = "OK";

/// Separator between the texts of two merged messages.
const TEXT_SEPARATOR: &str = "\n\n";

/// Messages in the order that a service accepts.
pub(super) fn ordered(turns: MessageOrder, written: Vec<Message<'_>>) -> Vec<Message<'_>> {
    match turns {
        MessageOrder::Any => written,
        MessageOrder::Joined => joined(written),
        MessageOrder::Strict => joined(strict(written)),
    }
}

/// How that order changes a conversation: the number of messages added and merged per role, and the
/// texts added.
pub(super) fn changes(turns: MessageOrder, written: Vec<Message<'_>>) -> RequestDiff {
    let mut changes = RequestDiff::default();
    let written = match turns {
        MessageOrder::Any => return changes,
        MessageOrder::Joined => written,
        MessageOrder::Strict => {
            let before = numbers(&written);
            let strict = strict(written);
            let [instructions, users, answers] = count(&mut changes, before, &strict);
            changes.texts(INSTRUCTIONS, -instructions);
            changes.texts(OPENING, users + instructions);
            changes.texts(ACKNOWLEDGEMENT, answers);
            strict
        }
    };
    let before = numbers(&written);
    let texts_before = texts(&written);
    let joined = joined(written);
    count(&mut changes, before, &joined);
    // Two merged texts have a separator between them; two messages may merge without one.
    changes.texts(TEXT_SEPARATOR, texts_before - texts(&joined));
    changes
}

/// Number of texts that may be merged with another text.
fn texts(messages: &[Message<'_>]) -> i64 {
    let of_part = |part: &UserPart<'_>| i64::from(matches!(part, UserPart::Text { .. }));
    let of_message = |message: &Message<'_>| match message {
        Message::Instructions { .. } => 1,
        Message::User { content: UserContent::Text(_) } => 1,
        Message::User { content: UserContent::Parts(parts) } => parts.iter().map(of_part).sum(),
        Message::Assistant(Assistant { content, refusal, reasoning_content, reasoning, .. }) => {
            [content, refusal, reasoning_content, reasoning].into_iter().map(|text| i64::from(text.is_some())).sum()
        }
        Message::Tool { .. } => 0,
    };
    messages.iter().map(of_message).sum()
}

/// Counts the messages that were added. Returns the numbers of system, user and assistant messages.
fn count(changes: &mut RequestDiff, before: [i64; 3], after: &[Message<'_>]) -> [i64; 3] {
    let after = numbers(after);
    let added = std::array::from_fn(|at| after[at] - before[at]);
    for (role, added) in [Role::System, Role::User, Role::Assistant].into_iter().zip(added) {
        changes.messages(role, added);
    }
    added
}

/// Numbers of system, user and assistant messages.
fn numbers(messages: &[Message<'_>]) -> [i64; 3] {
    let mut numbers = [0; 3];
    for message in messages {
        match message {
            Message::Instructions { .. } => numbers[0] += 1,
            Message::User { .. } => numbers[1] += 1,
            Message::Assistant(_) => numbers[2] += 1,
            Message::Tool { .. } => {}
        }
    }
    numbers
}

/// Rearranges messages for a strict template: system messages at the start only, a first message
/// from the user, and an assistant message between tool results and a user message. Later system
/// messages become user messages. Consecutive messages of one role may remain.
pub(super) fn strict(written: Vec<Message<'_>>) -> Vec<Message<'_>> {
    let mut fitting: Vec<Message<'_>> = Vec::with_capacity(written.len());
    for message in written {
        let message = match (message, has_conversation(&fitting)) {
            (Message::Instructions { content, .. }, true) => {
                let content = UserContent::Text(Cow::Owned(format!("{INSTRUCTIONS}{content}")));
                Message::User { content }
            }
            (message, _) => message,
        };
        match (&message, fitting.last()) {
            (Message::User { .. }, Some(Message::Tool { .. })) => {
                let content = Some(ACKNOWLEDGEMENT.to_owned());
                fitting.push(Message::Assistant(Assistant { content, ..Assistant::default() }));
            }
            (Message::Assistant(_), _) if !has_conversation(&fitting) => {
                fitting.push(Message::User { content: UserContent::Text(Cow::Borrowed(OPENING)) });
            }
            (_, _) => {}
        }
        fitting.push(message);
    }
    fitting
}

/// Merges consecutive messages of one role. An assistant message with calls is followed by their
/// results, so it is not merged with another.
pub(super) fn joined(written: Vec<Message<'_>>) -> Vec<Message<'_>> {
    let mut joined: Vec<Message<'_>> = Vec::with_capacity(written.len());
    for message in written {
        match (joined.last_mut(), message) {
            (Some(Message::Instructions { content: before, .. }), Message::Instructions { content, .. }) => {
                add(before, &content)
            }
            (Some(Message::User { content: before }), Message::User { content }) => before.extend(content),
            (Some(Message::Assistant(before)), Message::Assistant(next)) if before.tool_calls.is_empty() => {
                before.extend(next);
            }
            (_, message) => joined.push(message),
        }
    }
    joined
}

/// Whether any message is not a system message.
fn has_conversation(messages: &[Message<'_>]) -> bool {
    !messages.iter().all(|message| matches!(message, Message::Instructions { .. }))
}

impl<'a> UserContent<'a> {
    /// Appends another user content. If both are texts, it becomes a new paragraph.
    fn extend(&mut self, next: Self) {
        match (self, next) {
            (Self::Text(text), Self::Text(next)) => add(text, &next),
            (before, next) => {
                let mut parts = std::mem::replace(before, Self::Parts(Vec::new())).into_parts();
                parts.extend(next.into_parts());
                *before = Self::Parts(parts);
            }
        }
    }

    fn into_parts(self) -> Vec<UserPart<'a>> {
        match self {
            Self::Text(text) => vec![UserPart::Text { text }],
            Self::Parts(parts) => parts,
        }
    }
}

impl Assistant<'_> {
    /// Appends another assistant message.
    fn extend(&mut self, next: Self) {
        let Assistant { content, refusal, reasoning_content, reasoning, reasoning_details, tool_calls, images } = next;
        for (before, next) in [
            (&mut self.content, content),
            (&mut self.refusal, refusal),
            (&mut self.reasoning_content, reasoning_content),
            (&mut self.reasoning, reasoning),
        ] {
            match (before, next) {
                (Some(before), Some(next)) => {
                    before.push_str(TEXT_SEPARATOR);
                    before.push_str(&next);
                }
                (before, Some(next)) => *before = Some(next),
                (_, None) => {}
            }
        }
        self.reasoning_details.extend(reasoning_details);
        self.tool_calls.extend(tool_calls);
        self.images.extend(images);
    }
}

fn add(text: &mut Cow<'_, str>, next: &str) {
    let text = text.to_mut();
    text.push_str(TEXT_SEPARATOR);
    text.push_str(next);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::openai::wire::{Call, Function};

    fn says(role: &str, text: &'static str) -> Message<'static> {
        let content = Cow::Borrowed(text);
        let assistant =
            |content: Option<&str>| Assistant { content: content.map(str::to_owned), ..Assistant::default() };
        match role {
            "system" => Message::Instructions { role: "system", content },
            "user" => Message::User { content: UserContent::Text(content) },
            "assistant" => Message::Assistant(assistant(Some(text))),
            "calls" => {
                let function = Function { name: Cow::Borrowed("look"), arguments: "{}" };
                let call = Call { id: text, kind: "function", function, extra_content: None };
                Message::Assistant(Assistant { tool_calls: vec![call], ..assistant(None) })
            }
            "tool" => Message::Tool { tool_call_id: text, content: Cow::Borrowed("") },
            other => panic!("{other}"),
        }
    }

    fn check(
        order: fn(Vec<Message<'_>>) -> Vec<Message<'_>>,
        given: &[(&str, &'static str)],
        expected: &[(&str, &str)],
    ) {
        let written = order(given.iter().map(|(role, text)| says(role, text)).collect());
        let written = serde_json::to_value(&written).expect("JSON");
        let shown: Vec<(String, String)> = written
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let id = message["tool_calls"][0]["id"].clone();
                let said = [&message["content"], &id, &message["tool_call_id"]].map(text).concat();
                (text(&message["role"]), said)
            })
            .collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect();
        assert_eq!(shown, expected, "{given:?}");
    }

    #[test]
    fn consecutive_messages_of_one_role_are_merged() {
        check(joined, &[], &[]);
        check(
            joined,
            &[("system", "a"), ("system", "b"), ("user", "c"), ("user", "d"), ("assistant", "e"), ("assistant", "f")],
            &[("system", "a\n\nb"), ("user", "c\n\nd"), ("assistant", "e\n\nf")],
        );
        check(
            joined,
            &[("user", "a"), ("assistant", "b"), ("calls", "c"), ("tool", "c"), ("user", "d"), ("system", "e")],
            &[("user", "a"), ("assistant", "bc"), ("tool", "c"), ("user", "d"), ("system", "e")],
        );
        let mut media = UserContent::Parts(vec![UserPart::Text { text: "a".into() }]);
        media.extend(UserContent::Text("b".into()));
        assert_eq!(json!(media), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
    }

    #[test]
    fn strict_templates_get_system_first_and_alternating_roles() {
        let both: fn(Vec<Message<'_>>) -> Vec<Message<'_>> = |written| joined(strict(written));
        check(
            both,
            &[("system", "a"), ("assistant", "b"), ("user", "c"), ("system", "d")],
            &[("system", "a"), ("user", OPENING), ("assistant", "b"), ("user", "c\n\n[Instructions]\nd")],
        );
        check(
            both,
            &[("calls", "a"), ("tool", "a"), ("user", "b")],
            &[("user", OPENING), ("assistant", "a"), ("tool", "a"), ("assistant", ACKNOWLEDGEMENT), ("user", "b")],
        );
        check(both, &[("system", "a"), ("system", "b")], &[("system", "a\n\nb")]);
    }
}
