//! Where the prompt cache may end.
//!
//! The service looks a prompt up by what stands before each marker, tools first, then instructions,
//! then messages. Four markers are allowed. Two stand still: after the system prompt, so that other
//! pinned blocks do not cost the tools, and after all instructions. Two move with the conversation:
//! one where the request before this one ended, which is what can be read, and one at the end,
//! which is written for the next one. The service itself looks back from a marker for 20 blocks
//! only, which a step with many calls exceeds.

use super::wire::{Block, CacheControl, Content, Message, Speaker, Tool};

/// Blocks of instructions that get a marker: the system prompt, and the last one.
pub(super) fn of_instructions(
    count: usize,
    at: usize,
    marker: CacheControl,
) -> Option<CacheControl> {
    (at == 0 || at + 1 == count).then_some(marker)
}

/// Marks the last tool of the host, where no instructions follow.
pub(super) fn mark_tools(tools: &mut [Tool<'_>], has_instructions: bool, marker: CacheControl) {
    if !has_instructions && let Some(last) = tools.last_mut() {
        last.cache_control = Some(marker);
    }
}

/// Marks the end of the conversation, and where the request before this one ended.
pub(super) fn mark_messages(messages: &mut [Message<'_>], marker: CacheControl) {
    let answer = messages
        .iter()
        .rposition(|message| message.role == Speaker::Assistant);
    if let Some(answer) = answer {
        mark_last(&mut messages[..answer], marker);
    }
    mark_last(messages, marker);
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
