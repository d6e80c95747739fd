//! The gRPC API: the only place that speaks gRPC.
//!
//! A handler decodes ([`decode`]: everything that can be wrong with a request ends there), asks the
//! engine, and encodes the answer. Errors become statuses in one table ([`status`]).

pub mod blob;
pub mod context;
mod counts;
pub mod deadline;
pub mod decode;
pub mod encode;
pub mod gate;
pub mod health;
pub mod model;
mod nearly_full;
pub mod page;
pub mod preview;
mod prompt;
pub mod queue;
mod raw_output;
pub mod readiness;
pub mod server;
pub mod session;
mod stats;
mod stats_text;
pub mod status;
pub mod stream;
pub mod turn;
pub mod violations;
pub mod whole_body;
pub mod wire_errors;

use crate::model::TenantId;

/// Bytes that a page of a list may have; a page with one item may have more.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that are read from the database at once for a page, as they are stored; one item may have
/// more.
const READ_BYTES: i64 = 8 * 1024 * 1024;

/// Whose data a request is about. Without authentication everybody is the tenant `default`.
fn tenant<T>(_request: &tonic::Request<T>) -> TenantId {
    TenantId::new("default")
}
