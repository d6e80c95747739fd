//! The changes to calls by messages that a host appends.

use super::mark_rows::PartPosition;
use crate::model::{BlobId, CallId};

/// A call in an appended message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCall {
    pub id: CallId,
    /// Name of the tool.
    pub name: String,
    pub made: PartPosition,
    /// Position of its result. `None` means the call stays open.
    pub answered: Option<PartPosition>,
}

/// The calls, answers and blobs of appended messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImportRows<'a> {
    /// Calls in the messages.
    pub calls: &'a [ImportedCall],
    /// Calls that were open, and the positions of their results.
    pub answers: &'a [(CallId, PartPosition)],
    /// Blobs that results reference: the whole output of truncated results, and media.
    pub blobs: &'a [(PartPosition, BlobId)],
    /// The version of the transcript before the messages.
    pub version_before: i64,
}
