//! The deletion of a tenant.

use super::TenantId;

/// The record of a tenant's deletion: the only data that remains of the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDeletion {
    pub tenant: TenantId,
    /// When the deletion was requested.
    pub requested_at: jiff::Timestamp,
    /// The caller that requested it, as named in logs.
    pub requested_by: String,
    /// When all data was deleted. `None` while the deletion is in progress.
    pub done_at: Option<jiff::Timestamp>,
    /// Number of deleted sessions.
    pub sessions: u64,
    /// Number of deleted blobs.
    pub blobs: u64,
    /// Total size of the deleted blobs in bytes.
    pub blob_bytes: u64,
    /// Number of deleted API keys.
    pub keys: u64,
}
