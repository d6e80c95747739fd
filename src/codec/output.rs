//! Limits of tool output, to and from their proto form.

use crate::{
    model::{Keep, OutputLimits},
    pb,
};

use super::{
    DecodeError,
    number::{known, non_zero, or_zero},
};

/// Converts limits for the wire.
pub fn to_pb(limits: OutputLimits) -> pb::ToolOutputLimits {
    let OutputLimits {
        max_chars,
        max_lines,
        max_line_length,
        max_matches,
        keep,
    } = limits;
    pb::ToolOutputLimits {
        max_output_chars: or_zero(max_chars),
        max_lines: or_zero(max_lines),
        max_line_length: or_zero(max_line_length),
        max_matches: or_zero(max_matches),
        keep: keep_to_pb(keep).into(),
    }
}

/// Reads stored limits.
pub fn from_pb(limits: pb::ToolOutputLimits) -> Result<OutputLimits, DecodeError> {
    let pb::ToolOutputLimits {
        max_output_chars,
        max_lines,
        max_line_length,
        max_matches,
        keep,
    } = limits;
    Ok(OutputLimits {
        max_chars: non_zero("output limit", max_output_chars)?,
        max_lines: non_zero("output limit", max_lines)?,
        max_line_length: non_zero("output limit", max_line_length)?,
        max_matches: non_zero("output limit", max_matches)?,
        keep: keep_from_pb(known("output limit", keep)?),
    })
}

fn keep_to_pb(keep: Option<Keep>) -> pb::KeepPart {
    match keep {
        None => pb::KeepPart::Unspecified,
        Some(Keep::Head) => pb::KeepPart::Head,
        Some(Keep::HeadAndTail) => pb::KeepPart::HeadAndTail,
    }
}

fn keep_from_pb(keep: pb::KeepPart) -> Option<Keep> {
    match keep {
        pb::KeepPart::Unspecified => None,
        pb::KeepPart::Head => Some(Keep::Head),
        pb::KeepPart::HeadAndTail => Some(Keep::HeadAndTail),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn output_limits_round_trip(limits in arbitrary::output_limits()) {
            prop_assert_eq!(from_pb(to_pb(limits)), Ok(limits));
        }
    }
}
