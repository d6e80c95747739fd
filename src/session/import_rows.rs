//! What a change does to the calls of messages that a host appends.

use super::mark_rows::Place;
use crate::model::{BlobId, CallId};

/// A call that an appended message makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Where it is made.
    pub made: Place,
    /// Where it is answered. `None` means it stays open.
    pub answered: Option<Place>,
}

/// What comes with appended messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Imported<'a> {
    /// Calls that they make.
    pub calls: &'a [ImportedCall],
    /// Calls that were open, and where they are answered.
    pub answers: &'a [(CallId, Place)],
    /// What results refer to: outputs that were cut, whole, and media.
    pub blobs: &'a [(Place, BlobId)],
    /// The version of the transcript before them.
    pub behind: i64,
}
