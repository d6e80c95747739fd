//! Tool calls: handed out, answered by hosts or by MCP servers, and closed.

pub(in crate::turn) mod batch;
mod mcp;
mod overdue;
mod parties;
mod receipts;
pub(in crate::turn) mod result_words;
pub mod submit;
