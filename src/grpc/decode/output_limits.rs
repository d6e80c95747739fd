//! Checks limits on tool output.

use super::{Findings, Path, number};
use crate::pb;

/// Checks limits on tool output.
pub(super) fn check(at: Path<'_>, limits: &pb::ToolOutputLimits, found: &mut Findings) {
    let pb::ToolOutputLimits {
        max_output_chars,
        max_lines,
        max_line_length,
        max_matches,
        keep,
    } = limits;
    number::count(at.field("max_output_chars"), *max_output_chars, found);
    number::count(at.field("max_lines"), *max_lines, found);
    number::count(at.field("max_line_length"), *max_line_length, found);
    number::count(at.field("max_matches"), *max_matches, found);
    number::enum_value::<pb::KeepPart>(at.field("keep"), *keep, found);
}
