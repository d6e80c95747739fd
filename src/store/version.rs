//! Versions: what a prompt is made of, as numbers that only grow.

use tokio_postgres::Row;

use super::{Error, row::get};
use crate::{model::Fence, session::creation::FIRST_REVISION};

/// Bits of a version's number for the transcript. Those above are for the configuration.
const TRANSCRIPT_BITS: u32 = 32;

/// What a prompt is made of, in numbers that only grow. The transcript has three: compactions and
/// appends move the first, owners the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Version of the context.
    pub context: i64,
    /// Owners so far.
    pub epoch: i64,
    /// Writes of owners so far.
    pub op: i64,
    /// The revision of the configuration.
    pub revision: i64,
}

impl Version {
    /// As one number above 0 that clients send back. It is the same only where neither transcript
    /// nor configuration has changed.
    pub fn number(self) -> i64 {
        ((self.revision - FIRST_REVISION) << TRANSCRIPT_BITS) + self.transcript()
    }

    /// The fence: owners and their writes.
    pub fn fence(self) -> Fence {
        Fence {
            epoch: self.epoch,
            op: self.op,
        }
    }

    /// The transcript's part: a sum that is the same only where none of the three has moved.
    pub fn transcript(self) -> i64 {
        1 + self.context + self.epoch + self.op
    }
}

/// The transcript's part of a version's number.
pub fn transcript_of(number: i64) -> i64 {
    number & ((1 << TRANSCRIPT_BITS) - 1)
}

/// What a row of `session_run` says of the version.
pub(super) fn version(row: &Row) -> Result<Version, Error> {
    Ok(Version {
        context: get(row, "context_version")?,
        epoch: get(row, "epoch")?,
        op: get(row, "op")?,
        revision: get(row, "revision")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_version_distinguishes_transcripts_and_configurations() {
        let first = Version {
            context: 3,
            epoch: 2,
            op: 7,
            revision: FIRST_REVISION,
        };
        assert_eq!(
            (first.number(), first.transcript()),
            (13, 13),
            "the configuration did not change"
        );
        let changed = Version {
            revision: FIRST_REVISION + 1,
            ..first
        };
        assert!(changed.number() > first.number());
        assert_eq!(
            (
                transcript_of(changed.number()),
                transcript_of(first.number())
            ),
            (13, 13)
        );
        let appended = Version {
            context: 4,
            ..changed
        };
        assert_eq!(appended.number(), changed.number() + 1);
    }
}
