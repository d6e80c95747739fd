//! Tool calls: requesting them, storing results of hosts and MCP servers, and closing them.

pub(in crate::turn) mod batch;
mod mcp;
mod overdue;
mod parties;
mod receipts;
pub(in crate::turn) mod result_words;
pub mod submit;
