//! Custom tool calls, whose input is a text. The Responses API has a separate item type for their
//! results.

use std::collections::BTreeSet;

use super::assistant_items;
use crate::model::{CallId, Message};

/// The custom tool calls of a set of messages.
#[derive(Debug, Clone, Default)]
pub struct CustomCalls(BTreeSet<CallId>);

impl CustomCalls {
    /// Adds the custom tool calls of a message.
    pub fn add(&mut self, message: &Message) {
        self.0.extend(assistant_items::custom_calls(message).cloned());
    }

    /// Whether a call is a custom tool call.
    pub(super) fn contains(&self, call: &CallId) -> bool {
        self.0.contains(call)
    }
}
