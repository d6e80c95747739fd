//! Answers that are remembered for the repetition of their requests, as text.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;

use super::{DecodeError, usage};
use crate::{model::Recorded, pb};

/// What was made of a report, as far as it stays the same.
pub fn write_recorded(recorded: &Recorded) -> String {
    let Recorded { estimate, size } = recorded;
    write(&pb::RecordUsageResponse {
        estimate: estimate.as_ref().map(usage::estimate_to_pb),
        calibration_ratio: 0.0,
        context_tokens: Some(usage::count_to_pb(size)),
    })
}

/// The same as it was remembered.
pub fn read_recorded(text: &str) -> Result<Recorded, DecodeError> {
    let pb::RecordUsageResponse { estimate, calibration_ratio: _, context_tokens } = read("recorded usage", text)?;
    Ok(Recorded {
        estimate: estimate.map(usage::estimate_from_pb).transpose()?,
        size: usage::count_from_pb(context_tokens.unwrap_or_default())?,
    })
}

fn write(message: &impl Message) -> String {
    STANDARD.encode(message.encode_to_vec())
}

fn read<M: Message + Default>(what: &'static str, text: &str) -> Result<M, DecodeError> {
    let bytes = STANDARD.decode(text).map_err(|error| DecodeError::new(what, error))?;
    super::read(what, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TokenBasis, TokenCount, event::Estimate};

    #[test]
    fn what_is_remembered_is_what_was_answered() {
        let size = TokenCount { tokens: 5_120, basis: TokenBasis::Heuristic, margin: 2, estimator: "chars".to_owned() };
        let estimate = Estimate { estimated: 5_120, actual: 5_115, basis: TokenBasis::Actual };
        for estimate in [None, Some(estimate)] {
            let recorded = Recorded { estimate, size: size.clone() };
            assert_eq!(read_recorded(&write_recorded(&recorded)), Ok(recorded));
        }
        assert!(read_recorded("no such thing").is_err());
    }
}
