//! Placement of prompt cache markers.
//!
//! The service looks up a prompt by the content before each marker: tools first, then instructions,
//! then messages. Four markers are allowed. Two have fixed positions: after the system prompt, so
//! that a change of other pinned blocks does not invalidate the tools, and after all instructions.
//! Two move with the conversation: one at the end of the previous request, which is what can be
//! read, and one at the end of this request, which is written for the next one. The marker at the
//! end of the previous request is needed because the service looks back only 20 blocks from a
//! marker, and a step with many calls exceeds that.
//!
//! A prune changes blocks far from the end, further than the service looks back. Without a marker
//! before the change, the whole conversation would miss the cache. So a conversation with pruned
//! results has a marker where these end, which is where the next prune begins; it replaces the
//! marker after all instructions. The first request after a prune reads up to the marker that
//! already existed there. That marker replaces the one at the end of the previous request, whose
//! content has changed.

use super::wire::{Block, CacheControl, Content, Message, Tool, WireRole};

/// The marker for the instruction block at `at`: the system prompt gets one, and so does the last
/// block unless its marker is needed within the conversation.
pub(super) fn of_instructions(count: usize, at: usize, has_pruned: bool, marker: CacheControl) -> Option<CacheControl> {
    (at == 0 || (at + 1 == count && !has_pruned)).then_some(marker)
}

/// Marks the last host tool if there are no instructions.
pub(super) fn mark_tools(tools: &mut [Tool<'_>], has_instructions: bool, marker: CacheControl) {
    if !has_instructions && let Some(last) = tools.last_mut() {
        last.cache_control = Some(marker);
    }
}

/// The extent of pruned results in a conversation, in messages from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pruned {
    /// Number of messages up to and including the last one whose results are all cleared. 0 if
    /// there is none.
    pub(super) cleared: usize,
    /// The value of `cleared` before the newest prune. `None` if that was the first prune.
    pub(super) cleared_before: Option<usize>,
    /// Number of messages up to and including the first with a result that the newest prune
    /// cleared.
    pub(super) changed: usize,
    /// No response has followed the newest prune yet.
    pub(super) is_new: bool,
}

impl Pruned {
    /// Number of messages before a marker of an earlier request, within the messages that the
    /// newest prune left unchanged.
    fn unchanged(self, messages: &[Message<'_>]) -> Option<usize> {
        self.cleared_before.or_else(|| request_before(messages.get(..self.changed)?))
    }
}

/// Marks the end of the conversation, the end of the previous request, and the end of the pruned
/// results. `pruned` is `None` if nothing is pruned.
pub(super) fn mark_messages(messages: &mut [Message<'_>], pruned: Option<Pruned>, marker: CacheControl) {
    let read = match pruned {
        Some(pruned) if pruned.is_new => pruned.unchanged(messages),
        Some(_) | None => request_before(messages),
    };
    let ends = [read, pruned.map(|pruned| pruned.cleared)];
    for end in ends.into_iter().flatten() {
        if let Some(before) = messages.get_mut(..end) {
            mark_last(before, marker);
        }
    }
    mark_last(messages, marker);
}

/// Number of messages in the last request that got a response: all messages before that response.
fn request_before(messages: &[Message<'_>]) -> Option<usize> {
    messages.iter().rposition(|message| message.role == WireRole::Assistant)
}

/// Marks the last block that can carry a marker.
fn mark_last(messages: &mut [Message<'_>], marker: CacheControl) {
    let messages = messages.iter_mut().rev();
    let blocks = messages.flat_map(|message| message.content.iter_mut().rev());
    let mut marks = blocks.filter_map(|block| match block {
        Block::Own {
            content:
                Content::Text { .. }
                | Content::Image { .. }
                | Content::Document { .. }
                | Content::ToolUse { .. }
                | Content::ToolResult { .. },
            cache_control,
        } => Some(cache_control),
        // The service rejects markers on reasoning.
        Block::Own { content: Content::Thinking { .. } | Content::RedactedThinking { .. }, cache_control: _ }
        | Block::Item(_) => None,
    });
    if let Some(mark) = marks.next() {
        *mark = Some(marker);
    }
}
