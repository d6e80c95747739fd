//! The transcript: messages in order. It is either closed, or ends in one open batch of tool calls. Only a closed
//! transcript is sent to a model.

use std::collections::BTreeSet;

use super::{CallId, Message, Role};

/// The messages of a session in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    messages: Vec<Message>,
}

/// A transcript in which every call has its result: the only form that may be sent to a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClosedTranscript {
    messages: Vec<Message>,
}

/// Why a transcript cannot be sent to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotClosed {
    /// Calls at the end have no results yet.
    #[error("the transcript ends in open calls: {0:?}")]
    Open(Vec<CallId>),
    /// A message separates calls from their results, or a result has no call.
    #[error("the transcript is broken at message {0}")]
    Broken(usize),
}

impl Transcript {
    /// Builds a transcript from messages in order, without the voided ones.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages: messages.into_iter().filter(|message| message.voided_at.is_none()).collect() }
    }

    /// The messages in order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Checks that every call is directly followed by its result.
    pub fn close(self) -> Result<ClosedTranscript, NotClosed> {
        let mut open: BTreeSet<CallId> = BTreeSet::new();
        for (index, message) in self.messages.iter().enumerate() {
            if message.role != Role::Tool && !open.is_empty() {
                return Err(NotClosed::Broken(index));
            }
            for part in &message.parts {
                let content = &part.part.content;
                let call =
                    content.as_call().map(|call| message.role == Role::Assistant && open.insert(call.id.clone()));
                let result = content.as_result().map(|result| message.role == Role::Tool && open.remove(&result.call));
                if call.or(result) == Some(false) {
                    return Err(NotClosed::Broken(index));
                }
            }
        }
        if open.is_empty() {
            Ok(ClosedTranscript { messages: self.messages })
        } else {
            Err(NotClosed::Open(open.into_iter().collect()))
        }
    }
}

impl ClosedTranscript {
    /// The messages in order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The messages, to be modified; [`Transcript::close`] checks them again.
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }
}

/// The index at which the current tool loop starts: that of the newest user message, or 0.
pub fn loop_begins(messages: &[Message]) -> usize {
    messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0)
}

/// Returns for each message whether the turn it belongs to, from one user message to the next, has tool calls. The
/// input is the role of each message and whether it has calls; a tool message always belongs to calls.
pub fn calling_turns(messages: impl IntoIterator<Item = (Role, bool)>) -> Vec<bool> {
    let mut calling: Vec<bool> = Vec::new();
    let mut begins = 0;
    for (at, (role, calls)) in messages.into_iter().enumerate() {
        if role == Role::User {
            begins = at;
        }
        let before = at > begins && calling[at - 1];
        let now = calls || role == Role::Tool;
        calling.push(before || now);
        if now && !before {
            calling[begins..].fill(true);
        }
    }
    calling
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::{
        Category, Content, MessageId, Part, PartSize, Seq, ToolCall, ToolOutcome, ToolResult, message::StoredPart,
    };

    /// A message in short form: `u` a user message, `a:1,2` an assistant message with calls 1 and 2, `t:1` results.
    fn message(short: &str) -> Message {
        let (role, calls) = short.split_once(':').unwrap_or((short, ""));
        let role = match role {
            "u" => Role::User,
            "a" => Role::Assistant,
            "t" => Role::Tool,
            other => panic!("no such role: {other}"),
        };
        let parts = calls.split(',').filter(|call| !call.is_empty()).map(|call| part(role, call)).collect();
        Message {
            id: MessageId::new(short),
            turn: None,
            step: 1,
            seq: Seq(1),
            role,
            parts,
            overhead: 4,
            created_at: Timestamp::UNIX_EPOCH,
            response: None,
            pinned: false,
            metadata: std::collections::BTreeMap::new(),
            queued: Vec::new(),
            is_summary: false,
            compacted_by: None,
            voided_at: None,
        }
    }

    fn part(role: Role, call: &str) -> StoredPart {
        let id = CallId::new(call);
        let name = "tool".to_owned();
        let content = if role == Role::Tool {
            let outcome = ToolOutcome::Success;
            Content::ToolResult(ToolResult {
                call: id,
                name,
                parts: Vec::new(),
                outcome,
                truncation: None,
                display_text: String::new(),
            })
        } else {
            Content::ToolCall(ToolCall { id, name, arguments: "{}".to_owned() })
        };
        let size = PartSize { tokens: 0, category: Category::ToolCalls };
        StoredPart { part: Part::new(content), size, estimator: String::new(), pruned: None }
    }

    fn closed(shorts: &str) -> Result<usize, NotClosed> {
        let messages = shorts.split_whitespace().map(message).collect();
        Transcript::new(messages).close().map(|closed| closed.messages().len())
    }

    #[test]
    fn a_closed_transcript_gives_its_messages_back() {
        let messages = ["u", "a:1", "t:1"].map(message).to_vec();
        let closed = Transcript::new(messages.clone()).close().unwrap();
        assert_eq!(closed.messages(), messages);
        assert_eq!(closed.into_messages(), messages);
    }

    #[test]
    fn a_transcript_is_closed_when_every_call_has_its_result_before_anything_else() {
        let open = |calls: &[&str]| Err(NotClosed::Open(calls.iter().map(|call| CallId::new(*call)).collect()));
        let table = [
            ("", Ok(0)),
            ("u a u a", Ok(4)),
            ("u a:1,2 t:1,2 a", Ok(4)),
            ("u a:1,2 t:2,1 a", Ok(4)),
            ("u a:1,2", open(&["1", "2"])),
            ("u a:1,2 t:1", open(&["2"])),
            ("u a:1 u t:1", Err(NotClosed::Broken(2))),
            ("u a:1,2 t:1 a", Err(NotClosed::Broken(3))),
            ("u t:1", Err(NotClosed::Broken(1))),
            ("u a:1 t:1,1", Err(NotClosed::Broken(2))),
            ("u a:1,1 t:1", Err(NotClosed::Broken(1))),
            ("u:1", Err(NotClosed::Broken(0))),
        ];
        for (shorts, expected) in table {
            assert_eq!(closed(shorts), expected, "{shorts}");
        }
    }

    #[test]
    fn voided_messages_do_not_count_in_a_transcript() {
        let mut voided = message("a:1");
        voided.voided_at = Some(Seq(9));
        let closed = Transcript::new(vec![message("u"), voided]).close();
        assert_eq!(closed.map(|closed| closed.messages().len()), Ok(1));
    }

    #[test]
    fn a_turn_calls_where_an_answer_between_two_users_does() {
        let table: [(&[&str], &[bool]); 5] = [
            (&["u", "a:", "u"], &[false, false, false]),
            (&["u", "a:", "u", "a:1", "t:1", "a:", "u", "a:"], &[false, false, true, true, true, true, false, false]),
            (&["t:1", "a:", "u"], &[true, true, false]),
            (&["a:1", "t:1", "u", "a:"], &[true, true, false, false]),
            (&[], &[]),
        ];
        for (messages, expected) in table {
            let messages: Vec<Message> = messages.iter().copied().map(message).collect();
            let told = messages.iter().map(|it| (it.role, it.calls()));
            assert_eq!(calling_turns(told), expected);
        }
    }
}
