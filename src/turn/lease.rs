//! The leases of this replica: the turns that run here, grants with a lost response, and turns that
//! are tried again later.

pub mod leases;
pub(in crate::turn) mod postponed;
