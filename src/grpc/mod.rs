//! The gRPC API. No other module depends on gRPC.
//!
//! A handler decodes the request (all validation is in [`decode`]), calls the engine, and encodes the
//! response. One table turns errors into statuses ([`status`]).

pub mod access;
pub mod admin;
pub mod admin_port;
pub mod admission;
pub mod blob;
pub mod call;
mod caller;
pub mod connection;
pub mod context;
mod counts;
pub mod deadline;
pub mod decode;
mod decoded_size;
pub mod encode;
mod ended_by;
mod export;
mod frames;
pub mod gate;
pub mod guard;
pub mod health;
mod json_blob;
mod large_session;
pub mod model;
mod names;
mod nearly_full;
pub mod page_room;
pub mod page_token;
pub mod preview;
mod prompt;
pub mod queue;
mod raw_output;
pub mod readiness;
mod refusal;
mod refusal_log;
pub mod request_body;
pub mod request_id;
mod room;
pub mod server;
pub mod session;
mod stats;
mod stats_text;
pub mod status;
mod strangers;
pub mod stream;
pub mod tls;
pub mod turn;
mod unread_answers;
pub mod violations;
pub mod whole_body;
pub mod wire_errors;
