//! Leases of turns: held here, taken over, handed over, and grants whose answer was lost.

pub mod leases;
pub(in crate::turn) mod postponed;
pub mod takeover;
