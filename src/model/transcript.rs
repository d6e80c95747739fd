//! The transcript: messages in order, closed or ending in one open batch of tool calls. Only a closed one is sent to a model.

use std::collections::BTreeSet;

use super::{CallId, Content, Message, Role};

/// The messages of a session in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transcript {
    messages: Vec<Message>,
}

/// A transcript in which every call has its result: what a model may be given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closed {
    messages: Vec<Message>,
}

/// Why a transcript cannot be sent to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotClosed {
    /// Calls at the end still wait for results.
    #[error("the transcript ends in open calls: {0:?}")]
    Open(Vec<CallId>),
    /// Something stands between calls and their results, or a result has no call.
    #[error("the transcript is broken at message {0}")]
    Broken(usize),
}

impl Transcript {
    /// Takes the messages in order, the voided ones left out.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages: messages.into_iter().filter(|message| message.voided_at.is_none()).collect() }
    }

    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Proves that every call has its result before anything else.
    pub fn close(self) -> Result<Closed, NotClosed> {
        let mut open: BTreeSet<CallId> = BTreeSet::new();
        for (index, message) in self.messages.iter().enumerate() {
            if message.role != Role::Tool && !open.is_empty() {
                return Err(NotClosed::Broken(index));
            }
            for part in &message.parts {
                let sound = match &part.part.content {
                    Content::ToolCall(call) => message.role == Role::Assistant && open.insert(call.id.clone()),
                    Content::ToolResult(result) => message.role == Role::Tool && open.remove(&result.call),
                    Content::Text(_) | Content::Reasoning { .. } | Content::Refusal(_) => true,
                };
                if !sound {
                    return Err(NotClosed::Broken(index));
                }
            }
        }
        if open.is_empty() {
            Ok(Closed { messages: self.messages })
        } else {
            Err(NotClosed::Open(open.into_iter().collect()))
        }
    }
}

impl Closed {
    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}
