//! Tool calls: handed out, answered by hosts, and closed.

pub(in crate::turn) mod batch;
mod overdue;
mod receipts;
pub mod submit;
mod synthetic_results;
