//! Where the prompt cache may end.
//!
//! The service looks a prompt up by what stands before each marker, tools first, then instructions,
//! then messages. Four markers are allowed. Two have fixed places: after the system prompt, so that
//! other pinned blocks do not cost the tools, and after all instructions. Two move with the
//! conversation: one where the request before this one ended, which is what can be read, and one at
//! the end, which is written for the next one. The service itself looks back from a marker for 20
//! blocks only, which a step with many calls exceeds.
//!
//! A prune changes blocks long before the end, further than the service looks back: without a
//! marker before the change all of the conversation would be read anew. So a conversation with
//! pruned results has a marker where these end, which is where the next prune begins. It takes the
//! place of the marker after all instructions. The first request after a prune reads up to the
//! marker that was there before, in place of the end of the request before it, which is changed.

use super::wire::{Block, CacheControl, Content, Message, Speaker, Tool};

/// Blocks of instructions that get a marker: the system prompt, and the last one unless its marker
/// is needed within the conversation.
pub(super) fn of_instructions(
    count: usize,
    at: usize,
    has_pruned: bool,
    marker: CacheControl,
) -> Option<CacheControl> {
    (at == 0 || (at + 1 == count && !has_pruned)).then_some(marker)
}

/// Marks the last tool of the host, where no instructions follow.
pub(super) fn mark_tools(tools: &mut [Tool<'_>], has_instructions: bool, marker: CacheControl) {
    if !has_instructions && let Some(last) = tools.last_mut() {
        last.cache_control = Some(marker);
    }
}

/// What prunes left of a conversation, in messages from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pruned {
    /// Up to the last of which all results are cleared, this one included; 0 without one.
    pub(super) cleared: usize,
    /// The same before the newest prune. `None` means that it was the first one.
    pub(super) cleared_before: Option<usize>,
    /// Up to the first with a result that the newest prune cleared, this one included.
    pub(super) changed: usize,
    /// No answer followed the newest prune yet.
    pub(super) is_new: bool,
}

impl Pruned {
    /// Messages that an earlier request had a marker after, of those that the newest prune left
    /// unchanged.
    fn unchanged(self, messages: &[Message<'_>]) -> Option<usize> {
        self.cleared_before
            .or_else(|| request_before(messages.get(..self.changed)?))
    }
}

/// Marks the end of the conversation, where the request before this one ended, and where pruned
/// results end. `None` means that nothing is pruned.
pub(super) fn mark_messages(
    messages: &mut [Message<'_>],
    pruned: Option<Pruned>,
    marker: CacheControl,
) {
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

/// Messages of the last request that was answered within these: all before its answer.
fn request_before(messages: &[Message<'_>]) -> Option<usize> {
    messages
        .iter()
        .rposition(|message| message.role == Speaker::Assistant)
}

/// Marks the last block that can be marked.
fn mark_last(messages: &mut [Message<'_>], marker: CacheControl) {
    let blocks = messages
        .iter_mut()
        .rev()
        .flat_map(|message| message.content.iter_mut().rev());
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
        // The service refuses markers there.
        Block::Own {
            content: Content::Thinking { .. } | Content::RedactedThinking { .. },
            cache_control: _,
        }
        | Block::Item(_) => None,
    });
    if let Some(mark) = marks.next() {
        *mark = Some(marker);
    }
}
