//! Decodes pinned blocks, which stay in every prompt.

use std::mem::take;

use super::{
    Findings, Path, number,
    text::{self, KIB, MaxLength},
};
use crate::{
    codec,
    pb::{self, FieldReason},
};

/// Maximum number of blocks in a session.
const MAX_BLOCKS: usize = 64;
/// Maximum length of a name, in characters.
const MAX_NAME_LENGTH: MaxLength = MaxLength::Chars(128);
/// Maximum size of a text, in bytes.
const MAX_TEXT_SIZE: MaxLength = MaxLength::Bytes(256 * KIB);

/// Checks the pinned blocks of a session, and replaces characters that cannot be stored.
pub(super) fn check(at: Path<'_>, blocks: &mut [pb::PinnedBlock], found: &mut Findings) {
    if blocks.len() > MAX_BLOCKS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_BLOCKS} elements"),
        );
    }
    text::check_unique_names(at, blocks.iter().map(|block| &block.name), found);
    for (i, block) in blocks.iter_mut().enumerate() {
        check_block(at.index(i), block, found);
    }
}

fn check_block(at: Path<'_>, block: &mut pb::PinnedBlock, found: &mut Findings) {
    let pb::PinnedBlock {
        name,
        text,
        category,
    } = block;
    if name.is_empty() {
        found.required(at.field("name"));
    }
    text::check_single_line(at.field("name"), name, MAX_NAME_LENGTH, found);
    *text = text::free_text(at.field("text"), take(text), MAX_TEXT_SIZE, found);
    let at = at.field("category");
    if let Some(category) = number::enum_value(at, *category, found)
        && codec::config::kind_from_pb(category).is_err()
    {
        found.invalid(
            at,
            FieldReason::Unsupported,
            "must be PINNED, MEMORY, SKILLS or AGENTS",
        );
    }
}
