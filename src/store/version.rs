//! Versions of a session's transcript and configuration, as numbers that only increase.

use tokio_postgres::Row;

use super::{Error, row::get};
use crate::{model::Fence, session::creation::FIRST_REVISION};

/// Number of bits for the transcript in a version's number. The higher bits are for the configuration.
const TRANSCRIPT_BITS: u32 = 32;

/// The version of the content of a prompt. The transcript has three counters: compactions and appends increment the
/// first, owners the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Version of the context.
    pub context: i64,
    /// Number of owners so far.
    pub epoch: i64,
    /// Number of owners' writes so far.
    pub op: i64,
    /// Revision of the configuration.
    pub revision: i64,
}

impl Version {
    /// Returns the version as one number above 0, which clients send back. It is equal only if neither transcript nor
    /// configuration has changed.
    pub fn number(self) -> i64 {
        ((self.revision - FIRST_REVISION) << TRANSCRIPT_BITS) + self.transcript()
    }

    /// Returns the fence: owners and their writes.
    pub fn fence(self) -> Fence {
        Fence { epoch: self.epoch, op: self.op }
    }

    /// Returns the transcript's part of the number: a sum that is equal only if none of the three counters has changed.
    pub fn transcript(self) -> i64 {
        1 + self.context + self.epoch + self.op
    }
}

/// Returns the transcript's part of a version's number.
pub fn transcript_of(number: i64) -> i64 {
    number & ((1 << TRANSCRIPT_BITS) - 1)
}

/// Decodes the version in a row of `session_run`.
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
        let first = Version { context: 3, epoch: 2, op: 7, revision: FIRST_REVISION };
        assert_eq!((first.number(), first.transcript()), (13, 13), "the configuration did not change");
        let changed = Version { revision: FIRST_REVISION + 1, ..first };
        assert!(changed.number() > first.number());
        assert_eq!((transcript_of(changed.number()), transcript_of(first.number())), (13, 13));
        let appended = Version { context: 4, ..changed };
        assert_eq!(appended.number(), changed.number() + 1);
    }
}
