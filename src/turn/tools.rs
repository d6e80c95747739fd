//! Tool calls: handed out, answered by hosts, and closed.

pub(in crate::turn) mod batch;
pub mod submit;
mod verdict;
