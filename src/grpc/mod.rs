//! The gRPC API: the only place that speaks gRPC.
//!
//! A handler decodes ([`decode`]: everything that can be wrong with a request ends there), asks the
//! engine, and encodes the answer. Errors become statuses in one table ([`status`]).

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
pub mod encode;
mod frames;
pub mod gate;
pub mod guard;
pub mod health;
pub mod model;
mod names;
mod nearly_full;
mod overload_log;
pub mod page_room;
pub mod page_token;
pub mod preview;
mod prompt;
pub mod queue;
mod raw_output;
pub mod readiness;
pub mod request_id;
pub mod server;
pub mod session;
mod stats;
mod stats_text;
pub mod status;
pub mod stream;
pub mod tls;
pub mod turn;
mod unread_answers;
pub mod violations;
pub mod whole_body;
pub mod wire_errors;
