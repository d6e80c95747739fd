//! Admission control: limits the rate of requests, concurrent requests and open streams. A request over a
//! limit of its tenant or of the server is rejected before any work is done for it, as is a request of a
//! tenant that is being deleted. While a tenant's requests wait too long for the database, only requests that
//! help running turns to finish are admitted for that tenant. Health checks are always answered. Health
//! streams, whose callers have no credential, have a small separate pool of slots.

use std::{
    future::ready,
    sync::{Arc, LazyLock},
    time::Duration,
};

use http::{Request, Response};
use http_body::Body as _;
use tokio::time::Instant;
use tonic::{Status, body::Body};

use super::{
    access,
    connection::Peer,
    guard::KeysRead,
    middleware::{Answer, Middleware, Next, holding, take_ready},
    rejection::Rejection,
    status::{self, Overloaded},
    tenant_pool::{PoolPermit, TenantPool},
    unread_responses::UnreadResponses,
};
use crate::{
    config::{Config, ServerConfig},
    model::{Principal, TenantId},
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
        !access::is_operator_call(caller, path) && self.engine.capacity.quotas.is_deleted(&caller.tenant)
    }

    fn admit(&self, caller: &Principal, path: &str) -> Result<AdmissionSlots, Rejection> {
        let tenant = &caller.tenant;
        let quotas = &self.engine.capacity.quotas;
        if !quotas.last_read().is_recent() {
            return Err(status::not_up_to_date().into());
        }
        let operates = access::is_operator_call(caller, path);
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
            Some(place) => holding(body, place),
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

impl<Q: Send + 'static> Middleware<Q> for Admission {
    fn handle<N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        // The guard lets only health checks through without a caller.
        let Some(caller) = request.extensions().get::<Principal>().cloned() else {
            return self.health(request, next);
        };
        let keys_read = request.extensions().get::<KeysRead>().copied();
        let admission = self.clone();
        let mut next = take_ready(next);
        Box::pin(async move {
            if admission.is_tenant_being_deleted(&caller, request.uri().path()) {
                admission.engine.capacity.quotas.is_still_deleted(&caller.tenant).await;
            }
            let admitted_at = admission.known_at(keys_read);
            match admission.admit(&caller, request.uri().path()) {
                Ok(admittance) => {
                    let answer = admitted_at.scope(next.call(request));
                    admission.call_admitted(answer, admittance).await
                }
                Err(refusal) => Ok(refusal.into_response()),
            }
        })
    }
}

impl Admission {
    /// Handles a call of the health service.
    fn health<Q, N: Next<Q>>(&self, request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        if request.uri().path() != WATCH_HEALTH {
            return Box::pin(next.call(request));
        }
        let Some(place) = self.health_streams.try_acquire(&HEALTH_TENANT) else {
            return Box::pin(ready(Ok(Overloaded::response())));
        };
        let peer = request.extensions().get::<Peer>();
        let on_connection = peer.map(Peer::begin_health_stream);
        let answer = next.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| holding(body, (place, on_connection)))) })
    }
}
