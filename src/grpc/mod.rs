//! The gRPC API. No other module depends on gRPC.
//!
//! A handler decodes the request (all validation is in [`decode`]), calls the engine, and encodes the
//! response. One table turns errors into statuses ([`status`]).

pub mod access;
pub mod admin;
pub mod admin_port;
pub mod admission;
pub mod blob;
pub mod body_end;
pub mod call;
mod caller;
pub mod connection;
pub mod context;
mod counts;
pub mod deadline;
pub mod decode;
mod decoded_size;
mod early_end_body;
pub mod encode;
mod export;
mod frames;
pub mod gate;
pub mod guard;
mod handler;
pub mod health;
mod json_blob;
mod large_session;
pub mod middleware;
pub mod model;
mod nearly_full;
pub mod page_budget;
pub mod page_token;
mod pager;
pub mod preview;
mod prompt;
pub mod queue;
mod raw_output;
pub mod readiness;
mod rejection;
mod rejection_log;
pub mod request_body;
pub mod request_id;
pub mod server;
pub mod session;
mod stats;
mod stats_text;
pub mod status;
pub mod stream;
mod tenant_pool;
pub mod tls;
pub mod turn;
mod unauthenticated_connections;
mod unread_responses;
pub mod violations;
pub mod wire_errors;
