//! How much of a tool's output is kept.

use super::{Findings, Path, number};
use crate::{
    model::{Keep, OutputLimits},
    pb,
};

/// Reads limits on tool output; 0 is not limited here.
pub(super) fn read(at: Path<'_>, limits: pb::ToolOutputLimits, found: &mut Findings) -> OutputLimits {
    let pb::ToolOutputLimits { max_output_chars, max_lines, max_line_length, max_matches, keep } = limits;
    OutputLimits {
        max_chars: number::count(at.field("max_output_chars"), max_output_chars, found),
        max_lines: number::count(at.field("max_lines"), max_lines, found),
        max_line_length: number::count(at.field("max_line_length"), max_line_length, found),
        max_matches: number::count(at.field("max_matches"), max_matches, found),
        keep: match number::known(at.field("keep"), keep, found) {
            Some(pb::KeepPart::Unspecified) | None => None,
            Some(pb::KeepPart::Head) => Some(Keep::Head),
            Some(pb::KeepPart::HeadAndTail) => Some(Keep::HeadAndTail),
        },
    }
}
