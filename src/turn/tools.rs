//! Tool calls: handed out, answered by hosts, and closed.

pub(in crate::turn) mod batch;
mod overdue;
mod receipts;
pub mod submit;
pub(in crate::turn) mod synthetic_results;
