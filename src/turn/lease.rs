//! Leases of turns: those held here, takeover, handover, and grants with a lost response.

pub mod leases;
pub(in crate::turn) mod postponed;
pub mod takeover;
