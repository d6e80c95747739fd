//! How many requests are taken, and how many streams are open: what is beyond a tenant's limit or the
//! server's is refused before anything is done for it, and so is what a tenant asks for that is being
//! deleted. While a tenant's requests wait for the database for too long, only what turns that run wait
//! for is taken from it. Health and reflection are always answered.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
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
    status::{self, Overloaded},
    unread_answers::Unread,
};
use crate::{
    model::{Access, Principal, TenantId, quota::has_fair_room},
    store::NewRequest,
    turn::Engine,
};

/// What brings turns that run to their end: to refuse it would make an overload last.
const FINISHING: [&str; 3] = [
    "/contextd.v1.TurnService/SubmitToolResults",
    "/contextd.v1.TurnService/CancelTurn",
    "/contextd.v1.ContextService/RecordUsage",
];

/// Counts the requests that are being answered, and asks the limits of their tenants.
#[derive(Debug, Clone)]
pub struct Admission {
    engine: Arc<Engine>,
    requests: Arc<Room>,
    streams: Arc<Room>,
    unread: Arc<Unread<Place>>,
    database_wait: Duration,
}

/// What there is room for.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Requests that are answered at once. One with a single answer counts until that is read, a stream
    /// until it begins.
    pub requests: usize,
    /// Streams that are open at once.
    pub streams: usize,
    /// How long a single answer may stay unread when there are other requests.
    pub answer_timeout: Duration,
    /// How long a tenant's requests may wait for a connection to the database before new ones of that
    /// tenant are refused.
    pub database_wait: Duration,
}

/// Room for requests, shared by all tenants.
#[derive(Debug)]
struct Room {
    most: usize,
    /// Whether there can be more than one tenant.
    is_shared: bool,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// A place in the room, for as long as it is held.
#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    tenant: TenantId,
}

impl Admission {
    /// Takes at most so many at once; `is_shared` if there can be more than one tenant.
    pub fn new(engine: Arc<Engine>, capacity: Capacity, is_shared: bool) -> Self {
        Self {
            engine,
            requests: Room::new(capacity.requests, is_shared),
            streams: Room::new(capacity.streams, is_shared),
            unread: Arc::new(Unread::new(capacity.answer_timeout)),
            database_wait: capacity.database_wait,
        }
    }

    fn admit(&self, caller: &Principal, path: &str) -> Result<Admittance, Refusal> {
        let tenant = &caller.tenant;
        let quotas = self.engine.quotas();
        let operates = caller.access == Access::Operator && path.starts_with(access::ADMIN);
        if !operates && quotas.is_deleted(tenant) {
            return Err(status::tenant_being_deleted(tenant).into());
        }
        let taken = quotas.request(tenant);
        taken.map_err(|exceeded| status::limit_reached(&exceeded))?;
        let is_new = !operates && !FINISHING.contains(&path);
        if is_new && self.engine.store().expected_wait(tenant) > self.database_wait {
            return Err(Refusal::Overloaded);
        }
        self.unread.drop_overdue(Instant::now());
        let enter = |room: &Arc<Room>| room.enter(tenant).ok_or(Refusal::Overloaded);
        Ok(Admittance {
            request: enter(&self.requests)?,
            stream: access::streams(path)
                .then(|| enter(&self.streams))
                .transpose()?,
            new: is_new.then(|| NewRequest::new(tenant.clone())),
        })
    }

    /// The answer, which keeps its place.
    fn hold(&self, answer: Response<Body>, admittance: Admittance) -> Response<Body> {
        if answer.body().is_end_stream() {
            return answer;
        }
        let Admittance {
            request,
            stream,
            new: _,
        } = admittance;
        answer.map(|body| match stream {
            Some(place) => Body::new(Streamed {
                body,
                _place: place,
            }),
            None => self.unread.hold(body, request),
        })
    }
}

/// Why a request is not admitted.
enum Refusal {
    /// The server has as much to do as it may.
    Overloaded,
    /// Another reason.
    Status(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Refusal {
    fn answer(self) -> Response<Body> {
        match self {
            Self::Overloaded => Overloaded::answer(),
            Self::Status(status) => status.into_http(),
        }
    }
}

/// The places of a request, and how it waits for the database.
#[derive(Debug)]
struct Admittance {
    request: Place,
    stream: Option<Place>,
    /// `None`: it goes ahead of new requests.
    new: Option<Arc<NewRequest>>,
}

impl Room {
    fn new(most: usize, is_shared: bool) -> Arc<Self> {
        Arc::new(Self {
            most,
            is_shared,
            taken: Mutex::default(),
        })
    }

    fn enter(self: &Arc<Self>, tenant: &TenantId) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_tenant.get(tenant).copied().unwrap_or_default();
        let own = if self.is_shared { own } else { 0 };
        if !has_fair_room(self.most, taken.all, own) {
            return None;
        }
        taken.all += 1;
        *taken.by_tenant.entry(tenant.clone()).or_default() += 1;
        Some(Place {
            room: Arc::clone(self),
            tenant: tenant.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self
            .room
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(own) = taken.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.by_tenant.remove(&self.tenant);
            }
        }
    }
}

impl<S> Layer<S> for Admission {
    type Service = Admitted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Admitted {
            inner,
            admission: self.clone(),
        }
    }
}

/// A service that takes so many requests.
#[derive(Debug, Clone)]
pub struct Admitted<S> {
    inner: S,
    admission: Admission,
}

impl<S, Q> Service<Request<Q>> for Admitted<S>
where
    S: Service<Request<Q>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The guard lets no other request of ours through without one.
        let Some(caller) = request.extensions().get::<Principal>() else {
            return Box::pin(self.inner.call(request));
        };
        match self.admission.admit(caller, request.uri().path()) {
            Ok(admittance) => {
                let admission = self.admission.clone();
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let answer = match &admittance.new {
                        Some(new) => Arc::clone(new).scope(answer).await?,
                        None => answer.await?,
                    };
                    Ok(admission.hold(answer, admittance))
                })
            }
            Err(refusal) => Box::pin(std::future::ready(Ok(refusal.answer()))),
        }
    }
}

/// The body of a stream that is open.
struct Streamed {
    body: Body,
    _place: Place,
}

impl http_body::Body for Streamed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_free_again_and_one_tenant_leaves_some_to_others() {
        let room = Room::new(100, true);
        let tenant = TenantId::new;
        let mut places: Vec<Place> = std::iter::from_fn(|| room.enter(&tenant("busy"))).collect();
        assert_eq!(places.len(), 90);
        assert!(room.enter(&tenant("late")).is_some());
        assert!(room.enter(&tenant("busy")).is_none());
        places.pop();
        assert!(room.enter(&tenant("busy")).is_some());
        drop(places);
        let taken = room.taken.lock().unwrap();
        assert_eq!((taken.all, taken.by_tenant.len()), (0, 0));
    }

    #[test]
    fn the_only_tenant_takes_all_places() {
        let room = Room::new(100, false);
        let tenant = TenantId::new("default");
        let places: Vec<Place> = std::iter::from_fn(|| room.enter(&tenant)).collect();
        assert_eq!(places.len(), 100);
    }
}
