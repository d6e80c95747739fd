//! Identifies the caller of a request.

use std::sync::Arc;

use super::{call::Call, status};
use crate::{model::Principal, pb::RequestIds};

/// The caller, which the guard added to the request. Returns UNAUTHENTICATED if there is none. Also records
/// in the call's log line what the request is about.
pub(super) fn caller<T: RequestIds>(request: &tonic::Request<T>) -> Result<Principal, tonic::Status> {
    let caller = request.extensions().get::<Principal>().cloned();
    let caller = caller.ok_or_else(status::unauthenticated)?;
    if let Some(call) = request.extensions().get::<Arc<Call>>() {
        let named = request.get_ref();
        call.record_session_and_turn(named.session(), named.turn());
        if let Some(tenant) = named.managed_tenant() {
            let own = tenant.is_empty();
            let tenant = if own { caller.tenant.as_str() } else { tenant };
            call.record_managed(tenant, named.managed_key());
        }
    }
    Ok(caller)
}
