//! Decodes pinned blocks, which stay in every prompt.

use std::mem::take;

use super::{
    Findings, Path, number,
    text::{self, AtMost, KIB},
};
use crate::{
    codec,
    pb::{self, FieldReason},
};

/// Maximum number of blocks in a session.
const MOST: usize = 64;
/// Maximum length of a name, in characters.
const LONGEST_NAME: AtMost = AtMost::Chars(128);
/// Maximum size of a text, in bytes.
const LONGEST_TEXT: AtMost = AtMost::Bytes(256 * KIB);

/// Checks the pinned blocks of a session, and replaces characters that cannot be stored.
pub(super) fn check(at: Path<'_>, blocks: &mut [pb::PinnedBlock], found: &mut Findings) {
    if blocks.len() > MOST {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST} elements"),
        );
    }
    text::unique(at, blocks.iter().map(|block| &block.name), found);
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
    text::check_line(at.field("name"), name, LONGEST_NAME, found);
    *text = text::prose(at.field("text"), take(text), LONGEST_TEXT, found);
    let at = at.field("category");
    if let Some(category) = number::known(at, *category, found)
        && codec::config::kind_from_pb(category).is_err()
    {
        found.invalid(
            at,
            FieldReason::Unsupported,
            "must be PINNED, MEMORY, SKILLS or AGENTS",
        );
    }
}
