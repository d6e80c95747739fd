//! Tool calls: requesting them, storing results of hosts and MCP servers, and closing them.

mod answered_turn;
pub(in crate::turn) mod batch;
mod mcp;
mod overdue;
mod receipts;
pub(in crate::turn) mod result_texts;
pub mod submit;
