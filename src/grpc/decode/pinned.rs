//! Blocks of text that stay in every prompt.

use std::collections::BTreeMap;

use super::{
    Findings, Path, number,
    text::{self, AtMost, KIB},
};
use crate::{
    model::{PinnedBlock, PinnedKind},
    pb::{self, FieldReason},
};

/// Most blocks of a session.
const MOST: usize = 64;
/// Most characters of a name.
const LONGEST_NAME: AtMost = AtMost::Chars(128);
/// Most bytes of a text.
const LONGEST_TEXT: AtMost = AtMost::Bytes(256 * KIB);

/// Reads the pinned blocks of a session.
pub(super) fn blocks(
    at: Path<'_>,
    blocks: Vec<pb::PinnedBlock>,
    found: &mut Findings,
) -> Vec<PinnedBlock> {
    if blocks.len() > MOST {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST} elements"),
        );
    }
    unique_names(at, &blocks, found);
    blocks
        .into_iter()
        .enumerate()
        .map(|(i, b)| block(at.index(i), b, found))
        .collect()
}

fn unique_names(at: Path<'_>, blocks: &[pb::PinnedBlock], found: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (i, block) in blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| !block.name.is_empty())
    {
        let first = *seen.entry(&block.name).or_insert(i);
        if first != i {
            let description = format!("{} has the same name", at.index(first));
            found.invalid(
                at.index(i).field("name"),
                FieldReason::Conflict,
                description,
            );
        }
    }
}

fn block(at: Path<'_>, block: pb::PinnedBlock, found: &mut Findings) -> PinnedBlock {
    let pb::PinnedBlock {
        name,
        text,
        category,
    } = block;
    if name.is_empty() {
        found.required(at.field("name"));
    }
    PinnedBlock {
        name: text::line(at.field("name"), name, LONGEST_NAME, found),
        text: text::prose(at.field("text"), text, LONGEST_TEXT, found),
        kind: kind(at.field("category"), category, found),
    }
}

fn kind(at: Path<'_>, category: i32, found: &mut Findings) -> PinnedKind {
    use pb::ContextCategory as Wire;
    match number::known(at, category, found) {
        Some(Wire::Unspecified | Wire::Pinned) | None => PinnedKind::Pinned,
        Some(Wire::Memory) => PinnedKind::Memory,
        Some(Wire::Skills) => PinnedKind::Skills,
        Some(Wire::Agents) => PinnedKind::Agents,
        Some(
            Wire::SystemPrompt
            | Wire::Tools
            | Wire::McpTools
            | Wire::DeferredTools
            | Wire::Summary
            | Wire::User
            | Wire::Assistant
            | Wire::Reasoning
            | Wire::ToolCalls
            | Wire::ToolResults
            | Wire::Media
            | Wire::Queued,
        ) => {
            found.invalid(
                at,
                FieldReason::Unsupported,
                "must be PINNED, MEMORY, SKILLS or AGENTS",
            );
            PinnedKind::Pinned
        }
    }
}
