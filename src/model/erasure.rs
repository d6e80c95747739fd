//! The deletion of a tenant.

use super::TenantId;

/// What is known of the deletion of a tenant: the one thing that is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDeletion {
    /// Which tenant.
    pub tenant: TenantId,
    /// When it was asked for.
    pub asked_at: jiff::Timestamp,
    /// The caller that asked, as logs name it.
    pub asked_by: String,
    /// When nothing was left. `None`: it goes on.
    pub done_at: Option<jiff::Timestamp>,
    /// Sessions that were removed.
    pub sessions: u64,
    /// Blobs that were removed.
    pub blobs: u64,
    /// Their bytes.
    pub blob_bytes: u64,
    /// API keys that were removed.
    pub keys: u64,
}
