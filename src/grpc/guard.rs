//! Authenticates and authorizes callers: a layer that passes on only the calls that their caller may make.

use std::sync::Arc;

use http::{Request, header::AUTHORIZATION, request::Parts};
use http_body::Body as _;
use jiff::Timestamp;
use tonic::{Status, body::Body};

use super::{
    access::{self, RequiredAccess},
    call::Call,
    connection::Peer,
    early_end_body::EarlyEndBody,
    middleware::{Answer, Middleware, Next, take_ready},
    status,
};
use crate::{
    auth::{Auth, Credentials, Identity},
    model::{Access, Principal},
    store::{Reach, admitted::LastRead},
};

/// Path prefix of the service that requires no credential, because probes have none.
const OPEN: &str = "/grpc.health.v1.Health/";

/// The time, by the database's clock, at which the API keys that identified the caller were read. `None` if
/// its credential is not stored in the database.
#[derive(Debug, Clone, Copy)]
pub struct KeysRead(pub Option<Timestamp>);

/// Checks callers.
#[derive(Debug, Clone)]
pub struct Guard {
    auth: Arc<Auth>,
}

impl Guard {
    /// Creates a guard that checks callers against these credentials.
    pub fn new(auth: Arc<Auth>) -> Self {
        Self { auth }
    }
}

impl<Q: Send + 'static> Middleware<Q> for Guard {
    fn handle<N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        if request.uri().path().starts_with(OPEN) {
            return Box::pin(next.call(request));
        }
        let auth = Arc::clone(&self.auth);
        let mut next = take_ready(next);
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let keys = auth.last_read();
            if keys.is_some_and(|keys| !keys.is_recent()) {
                return Ok(status::not_up_to_date().into_http());
            }
            // Read before the check, because the keys may be reloaded concurrently.
            let keys_read = keys.and_then(LastRead::at);
            let identity = match authorize(&auth, &head).await {
                Ok(identity) => identity,
                Err(refusal) => return Ok(refusal.into_http()),
            };
            let caller = identity.principal.clone();
            let reach = reach(&caller, head.uri.path());
            head.extensions.insert(KeysRead(keys_read.filter(|_| identity.is_of_stored_key())));
            head.extensions.insert(caller);
            let call = head.extensions.get::<Arc<Call>>().cloned();
            let request = Request::from_parts(head, body);
            let answer = reach.scope(async move { next.call(request).await });
            if !auth.is_required() {
                return answer.await;
            }
            let mut ended = Box::pin(until_credential_invalid(auth, identity, call));
            tokio::select! {
                biased;
                answer = answer => Ok(answer?.map(|body| {
                    if body.is_end_stream() {
                        body
                    } else {
                        Body::new(EarlyEndBody::new(body, ended))
                    }
                })),
                refusal = &mut ended => Ok(refusal.into_http()),
            }
        })
    }
}

/// Resolves when a caller's credential is no longer valid, with the status that ends its calls. Work that a
/// call has begun continues, as after a disconnect.
async fn until_credential_invalid(auth: Arc<Auth>, identity: Identity, call: Option<Arc<Call>>) -> Status {
    let denied = auth.credential_ended(&identity).await;
    if let Some(call) = call {
        call.record_denial(denied);
    }
    status::unauthenticated()
}

/// The rows that a call may reach: only operators manage tenants other than their own.
fn reach(caller: &Principal, path: &str) -> Reach {
    if access::is_operator_call(caller, path) { Reach::All } else { Reach::Tenant(caller.tenant.clone()) }
}

/// The caller's identity. Returns an error if the caller may not make this call.
async fn authorize(auth: &Auth, head: &Parts) -> Result<Identity, Status> {
    let path = head.uri.path();
    let peer = head.extensions.get::<Peer>();
    let header = head.headers.get(AUTHORIZATION);
    let credentials = Credentials {
        authorization: header.map(|value| value.to_str().unwrap_or_default()),
        certificate: peer.and_then(Peer::certificate),
    };
    let call = head.extensions.get::<Arc<Call>>();
    let identity = auth.identify(credentials).await.map_err(|denied| {
        if let Some(call) = call {
            call.record_denial(denied);
        }
        status::unauthenticated()
    })?;
    let caller = &identity.principal;
    if let Some(peer) = peer {
        peer.mark_authenticated();
    }
    if let Some(call) = call {
        call.record_caller(caller);
    }
    match access::required_access(path) {
        RequiredAccess::Access(needed) if needed > caller.access => Err(status::permission_denied(needed)),
        RequiredAccess::Undeclared => Err(status::permission_denied(Access::Operator)),
        // The framework rejects paths that are not RPCs of this API.
        RequiredAccess::Access(_) | RequiredAccess::UnknownRpc => Ok(identity),
    }
}
