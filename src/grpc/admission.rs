//! Admission control: limits the rate of requests, concurrent requests and open streams. A request over a
//! limit of its tenant or of the server is rejected before any work is done for it, as is a request of a
//! tenant that is being deleted. While a tenant's requests wait too long for the database, only requests that
//! help running turns to finish are admitted for that tenant. Health checks are always answered. Health
//! streams, whose callers have no credential, have a small separate pool of slots.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::time::Instant;
use tonic::{Status, body::Body};
use tower::{Layer, Service};

use super::{
    access,
    connection::Peer,
    guard::KeysRead,
    rejection::Rejection,
    status::{self, Overloaded},
    tenant_pool::{PoolPermit, TenantPool},
    unread_responses::UnreadResponses,
};
use crate::{
    config::{Config, ServerConfig},
    model::{Access, Principal, TenantId},
    store::{AdmittedAt, NewRequest},
    turn::Engine,
};

/// RPCs that help running turns to finish. Rejecting them would prolong an overload.
const TURN_FINISHING_RPCS: [&str; 3] = [
    "/contextd.v1.TurnService/SubmitToolResults",
    "/contextd.v1.TurnService/CancelTurn",
    "/contextd.v1.ContextService/RecordUsage",
];

/// The streaming RPC of the health service.
const WATCH_HEALTH: &str = "/grpc.health.v1.Health/Watch";
/// Maximum number of open health streams.
const MAX_HEALTH_STREAMS: usize = 256;
/// The pseudo tenant that holds the slots of health streams.
static HEALTH_TENANT: LazyLock<TenantId> = LazyLock::new(|| TenantId::new(""));

/// Counts concurrent requests and checks the limits of tenants.
#[derive(Debug, Clone)]
pub struct Admission {
    engine: Arc<Engine>,
    requests: Arc<TenantPool>,
    streams: Arc<TenantPool>,
    health_streams: Arc<TenantPool>,
    unread: Arc<UnreadResponses<PoolPermit>>,
    overload_wait: Duration,
}

impl Admission {
    /// Admits requests up to the limits of `config`.
    pub fn new(engine: Arc<Engine>, config: &Config) -> Self {
        let is_shared = config.auth.is_shared();
        let ServerConfig { max_requests, max_open_streams, answer_timeout, .. } = config.server;
        Self {
            engine,
            requests: TenantPool::new(max_requests, is_shared),
            streams: TenantPool::new(max_open_streams, is_shared),
            health_streams: TenantPool::new(MAX_HEALTH_STREAMS, false),
            unread: Arc::new(UnreadResponses::new(answer_timeout)),
            overload_wait: config.database.overload_wait,
        }
    }

    /// Whether a call must be rejected because its tenant is being deleted, as far as this replica knows.
    fn is_tenant_being_deleted(&self, caller: &Principal, path: &str) -> bool {
        !is_operator_call(caller, path) && self.engine.capacity.quotas.is_deleted(&caller.tenant)
    }

    fn admit(&self, caller: &Principal, path: &str) -> Result<AdmissionSlots, Rejection> {
        let tenant = &caller.tenant;
        let quotas = &self.engine.capacity.quotas;
        if !quotas.last_read().is_recent() {
            return Err(status::not_up_to_date().into());
        }
        let operates = is_operator_call(caller, path);
        if self.is_tenant_being_deleted(caller, path) {
            return Err(status::tenant_being_deleted(tenant).into());
        }
        let taken = quotas.request(tenant);
        taken.map_err(|exceeded| status::limit_reached(&exceeded))?;
        let is_new = !operates && !TURN_FINISHING_RPCS.contains(&path);
        if is_new && self.engine.store().expected_wait(tenant) > self.overload_wait {
            return Err(Rejection::Overloaded);
        }
        self.unread.drop_overdue(Instant::now());
        let enter = |room: &Arc<TenantPool>| room.try_acquire(tenant).ok_or(Rejection::Overloaded);
        Ok(AdmissionSlots {
            request: enter(&self.requests)?,
            stream: access::is_server_streaming(path).then(|| enter(&self.streams)).transpose()?,
            new: is_new.then(|| NewRequest::new(tenant.clone())),
        })
    }

    /// The older of the two times at which the data that admits a call was read: API keys, and limits with
    /// deletions.
    fn known_at(&self, keys_read: Option<KeysRead>) -> AdmittedAt {
        let limits = self.engine.capacity.quotas.last_read().at();
        let keys = keys_read.and_then(|KeysRead(at)| at);
        AdmittedAt(keys.into_iter().chain(limits).min())
    }

    /// Runs an admitted request and returns its response.
    async fn call_admitted<E>(
        &self,
        answer: impl Future<Output = Result<Response<Body>, E>>,
        admittance: AdmissionSlots,
    ) -> Result<Response<Body>, E> {
        let learned = self.engine.capacity.quotas.load_use(admittance.request.tenant());
        if let Err(error) = learned.await {
            return Ok(Status::from(error).into_http());
        }
        let answer = match &admittance.new {
            Some(new) => Arc::clone(new).scope(answer).await?,
            None => answer.await?,
        };
        Ok(self.hold(answer, admittance))
    }

    /// Ties the slot to the response body.
    fn hold(&self, answer: Response<Body>, admittance: AdmissionSlots) -> Response<Body> {
        if answer.body().is_end_stream() {
            return answer;
        }
        let AdmissionSlots { request, stream, new: _ } = admittance;
        answer.map(|body| match stream {
            Some(place) => Body::new(BodyWithSlot { body, _place: place }),
            None => self.unread.hold(body, request),
        })
    }
}

/// The slots of an admitted request.
#[derive(Debug)]
struct AdmissionSlots {
    request: PoolPermit,
    stream: Option<PoolPermit>,
    /// How the request waits for the database. `None` if it takes precedence over new requests.
    new: Option<Arc<NewRequest>>,
}

impl<S> Layer<S> for Admission {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService { inner, admission: self.clone() }
    }
}

/// A service with admission control.
#[derive(Debug, Clone)]
pub struct AdmissionService<S> {
    inner: S,
    admission: Admission,
}

impl<S, Q> Service<Request<Q>> for AdmissionService<S>
where
    S: Service<Request<Q>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Q: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The guard lets only health checks through without a caller.
        let Some(caller) = request.extensions().get::<Principal>() else {
            return self.health(request);
        };
        let keys_read = request.extensions().get::<KeysRead>().copied();
        let admission = self.admission.clone();
        if admission.is_tenant_being_deleted(caller, request.uri().path()) {
            let caller = caller.clone();
            let clone = self.inner.clone();
            let mut inner = std::mem::replace(&mut self.inner, clone);
            return Box::pin(async move {
                let quotas = &admission.engine.capacity.quotas;
                quotas.is_still_deleted(&caller.tenant).await;
                let admitted_at = admission.known_at(keys_read);
                match admission.admit(&caller, request.uri().path()) {
                    Ok(admittance) => {
                        let answer = admitted_at.scope(inner.call(request));
                        admission.call_admitted(answer, admittance).await
                    }
                    Err(refusal) => Ok(refusal.into_response()),
                }
            });
        }
        let admitted_at = admission.known_at(keys_read);
        match admission.admit(caller, request.uri().path()) {
            Ok(admittance) => {
                let answer = admitted_at.scope(self.inner.call(request));
                Box::pin(async move { admission.call_admitted(answer, admittance).await })
            }
            Err(refusal) => Box::pin(std::future::ready(Ok(refusal.into_response()))),
        }
    }
}

/// Whether an operator calls the admin API, which acts on other tenants.
fn is_operator_call(caller: &Principal, path: &str) -> bool {
    caller.access == Access::Operator && path.starts_with(access::ADMIN_SERVICE_PREFIX)
}

impl<S> AdmissionService<S> {
    /// Handles a call of the health service.
    fn health<Q>(&mut self, request: Request<Q>) -> <Self as Service<Request<Q>>>::Future
    where
        S: Service<Request<Q>, Response = Response<Body>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        Q: Send + 'static,
    {
        if request.uri().path() != WATCH_HEALTH {
            return Box::pin(self.inner.call(request));
        }
        let Some(place) = self.admission.health_streams.try_acquire(&HEALTH_TENANT) else {
            return Box::pin(std::future::ready(Ok(Overloaded::response())));
        };
        let peer = request.extensions().get::<Peer>();
        let on_connection = peer.map(Peer::begin_health_stream);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let streamed = |body| Body::new(BodyWithSlot { body, _place: (place, on_connection) });
            Ok(answer.await?.map(streamed))
        })
    }
}

/// The body of an open stream, with its slot.
struct BodyWithSlot<T> {
    body: Body,
    _place: T,
}

impl<T: Unpin> http_body::Body for BodyWithSlot<T> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
