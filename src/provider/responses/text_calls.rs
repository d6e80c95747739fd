//! Calls whose arguments are a text: the Responses API names their results differently.

use std::collections::BTreeSet;

use super::said;
use crate::model::{CallId, Message};

/// The calls of some messages whose arguments are a text.
#[derive(Debug, Clone, Default)]
pub struct TextCalls(BTreeSet<CallId>);

impl TextCalls {
    /// Adds those of a message.
    pub fn add(&mut self, message: &Message) {
        let calls = message.parts.iter().filter_map(|stored| {
            let call = stored.part.content.as_call()?;
            said::is_custom(&stored.part).then(|| call.id.clone())
        });
        self.0.extend(calls);
    }

    /// Whether a call is one of them.
    pub(super) fn contain(&self, call: &CallId) -> bool {
        self.0.contains(call)
    }
}
