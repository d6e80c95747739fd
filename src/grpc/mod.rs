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
pub mod page;
pub mod preview;
mod prompt;
pub mod queue;
mod raw_output;
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

use std::sync::Arc;

use self::{call::Call, names::Names};
use crate::model::{Principal, TenantId};

/// Bytes that a page of a list may have; a page with one item may have more.
const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that are read from the database at once for a page, as they are stored; one item may have
/// more.
const READ_BYTES: i64 = 8 * 1024 * 1024;

/// Who calls. The guard puts it in; a request without it is answered with nothing. The call's line in
/// the log gets what the request is about.
fn caller<T: Names>(request: &tonic::Request<T>) -> Result<Principal, tonic::Status> {
    let caller = request.extensions().get::<Principal>().cloned();
    let caller = caller.ok_or_else(status::unauthenticated)?;
    if let Some(call) = request.extensions().get::<Arc<Call>>() {
        let named = request.get_ref();
        call.is_about(named.session(), named.turn());
        if let Some(tenant) = named.managed_tenant() {
            let own = tenant.is_empty();
            let tenant = if own { caller.tenant.as_str() } else { tenant };
            call.manages(tenant, named.managed_key());
        }
    }
    Ok(caller)
}

/// Whose data a request is about.
fn tenant<T: Names>(request: &tonic::Request<T>) -> Result<TenantId, tonic::Status> {
    caller(request).map(|caller| caller.tenant)
}
