//! Checks the pinned blocks of a session.

use super::{Findings, Path, number, text};
use crate::{
    codec::field::Field as _,
    model::PinnedKind,
    pb::{self, FieldReason},
};

/// Checks what the limits of the fields do not express, and replaces characters that cannot be stored.
pub(super) fn check(at: Path<'_>, blocks: &mut [pb::PinnedBlock], found: &mut Findings) {
    text::check_unique_names(at, blocks.iter().map(|block| &block.name), found);
    for (i, block) in blocks.iter_mut().enumerate() {
        text::clean(&mut block.text);
        let category = number::choice(block.category);
        if category.is_some_and(|it: pb::ContextCategory| PinnedKind::from_field("category", it.into()).is_err()) {
            found.invalid(
                at.index(i).field("category"),
                FieldReason::Unsupported,
                "must be PINNED, MEMORY, SKILLS or AGENTS",
            );
        }
    }
}
