//! Answers to tool calls: results and decisions of hosts, calls of MCP servers, and calls that are
//! closed at their deadline.

mod answered_turn;
mod answers;
mod mcp;
mod overdue;
mod receipts;
pub mod submit;
