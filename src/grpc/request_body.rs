//! Reads requests completely before they are decoded, within a timeout, a limit on their size on the wire and
//! in memory, and a memory budget that tenants share fairly. Large requests are decoded and validated off the
//! threads that serve other requests, a few at a time.
//!
//! The framework would decode a message as soon as its last byte arrives, and hold it until the client ends
//! its stream. Client-streaming RPCs are read by their handlers.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::Full;
use prost::bytes::{Bytes, BytesMut};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::{Instant, timeout_at},
};
use tonic::body::Body;

use super::{
    access, decoded_size,
    gate::HEALTH,
    middleware::{Answer, Middleware, Next, take_ready},
    rejection::Rejection,
    status,
    tenant_pool::{PoolPermit, TenantPool},
};
use crate::{
    config::ServerConfig,
    fair::{FairPermit, FairSemaphore},
    model::{Principal, TenantId},
};

/// Length of a gRPC message prefix (gRPC over HTTP/2, "Length-Prefixed-Message").
const MESSAGE_PREFIX_BYTES: usize = 5;
/// Maximum size in bytes of a request to the health service.
pub(super) const MAX_HEALTH_REQUEST_BYTES: usize = 1024;
/// How many times its maximum size on the wire a request may take in memory.
const DECODED_FACTOR: usize = 8;
/// A request that takes more bytes than this in memory is large.
const LARGE_REQUEST_BYTES: usize = 256 * 1024;
/// The header with the message encoding. Compressed requests are rejected by this header, unread.
const ENCODING: &str = "grpc-encoding";

/// Reads requests before they are handled.
#[derive(Debug, Clone)]
pub(super) struct RequestBodies {
    config: ServerConfig,
    memory: Arc<TenantPool>,
    large: Arc<FairSemaphore>,
}

impl RequestBodies {
    /// `is_shared` is true if there can be more than one tenant.
    pub(super) fn new(config: ServerConfig, is_shared: bool) -> Self {
        Self {
            config,
            memory: TenantPool::new(config.request_memory_bytes(), is_shared),
            large: FairSemaphore::new(config.max_large_requests),
        }
    }

    /// Reads a request whose message has at most `most` bytes. The returned reservations must be held until the request
    /// has been handled.
    async fn read(
        &self,
        request: Request<Body>,
        most: usize,
    ) -> Result<(Request<Body>, RequestReservations), Rejection> {
        let (head, body) = request.into_parts();
        let until = Instant::now() + self.config.request_timeout;
        let caller = head.extensions.get::<Principal>();
        let mut memory = caller.map(|caller| self.memory.empty_permit(&caller.tenant));
        let read = read_body(body, most, memory.as_mut());
        let mut bytes = timeout_at(until, read).await.map_err(|_| status::request_too_slow())??;
        // These RPCs take a single message. The framework would decode further ones too.
        bytes.truncate(message_length(&bytes).map_or(MESSAGE_PREFIX_BYTES, |length| MESSAGE_PREFIX_BYTES + length));
        let message = bytes.get(MESSAGE_PREFIX_BYTES..).unwrap_or_default();
        let limit = most.saturating_mul(DECODED_FACTOR);
        // A message that is large on the wire is large in memory too, so wait before measuring it.
        let mut large = None;
        if let Some(caller) = caller.filter(|_| message.len() > LARGE_REQUEST_BYTES) {
            large = Some(self.wait_for_large_slot(&caller.tenant, until).await?);
        }
        let measure = || decoded_size::of_request(head.uri.path(), message, limit);
        let size = match &large {
            Some(_) => run_blocking(measure),
            None => measure(),
        };
        let size = size.map_err(|_| status::decoded_request_too_large(limit))?;
        if let Some(caller) = caller.filter(|_| size > LARGE_REQUEST_BYTES && large.is_none()) {
            large = Some(self.wait_for_large_slot(&caller.tenant, until).await?);
        }
        let held = RequestReservations { large, _memory: memory };
        let body = Body::new(Full::new(bytes));
        Ok((Request::from_parts(head, body), held))
    }

    /// Waits until a large request of a tenant may be decoded.
    async fn wait_for_large_slot(&self, tenant: &TenantId, until: Instant) -> Result<FairPermit, Rejection> {
        timeout_at(until, self.large.acquire(tenant)).await.map_err(|_| Rejection::Overloaded)
    }
}

/// The reservations that are held until a request has been handled.
#[derive(Debug)]
struct RequestReservations {
    large: Option<FairPermit>,
    _memory: Option<PoolPermit>,
}

/// The maximum size of a message in bytes. Returns `None` for requests that are not read here: client streams, paths
/// that are not RPCs of this server, and requests that are rejected by their headers.
fn max_bytes(path: &str, headers: &HeaderMap, config: &ServerConfig) -> Option<usize> {
    let is_packed = headers.get(ENCODING).is_some_and(|encoding| encoding != "identity");
    let ours = access::method(path).filter(|method| !method.is_client_streaming());
    let most = match ours {
        Some(_) => config.max_request_bytes,
        None if path.starts_with(HEALTH) => MAX_HEALTH_REQUEST_BYTES,
        None => return None,
    };
    (!is_packed).then_some(most)
}

/// Reads a body with one message of at most `most` bytes.
async fn read_body(mut body: Body, most: usize, mut memory: Option<&mut PoolPermit>) -> Result<Bytes, Rejection> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // The client disconnected or broke the protocol, so it does not read this status.
        let frame = frame?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let read = first.len() + rest.len() + data.len();
        if read > most + MESSAGE_PREFIX_BYTES {
            return Err(status::request_too_large(most).into());
        }
        if let Some(memory) = &mut memory
            && !memory.try_grow(data.len())
        {
            return Err(Rejection::Overloaded);
        }
        // Usually the body arrives in one frame, which is not copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
        let begin = if rest.is_empty() { &first[..] } else { &rest[..] };
        // The compression flag is 0 or 1; anything else is not a gRPC message.
        if begin.first().is_some_and(|packed| *packed > 1) {
            return Err(status::undecodable().into());
        }
        if message_length(begin).is_some_and(|length| length > most) {
            return Err(status::request_too_large(most).into());
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The length of the message from its prefix. Returns `None` if the prefix is incomplete.
fn message_length(begin: &[u8]) -> Option<usize> {
    let length = begin.get(1..MESSAGE_PREFIX_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

impl Middleware<Body> for RequestBodies {
    fn handle<N: Next<Body>>(&self, request: Request<Body>, next: &mut N) -> Answer<N::Error> {
        let Some(most) = max_bytes(request.uri().path(), request.headers(), &self.config) else {
            return Box::pin(next.call(request));
        };
        let bodies = self.clone();
        let mut next = take_ready(next);
        Box::pin(async move {
            let (request, held) = match bodies.read(request, most).await {
                Ok(read) => read,
                Err(refusal) => return Ok(refusal.into_response()),
            };
            let answer = next.call(request);
            let answer = match &held.large {
                Some(_) => BlockingFuture(Box::pin(answer)).await,
                None => answer.await,
            };
            drop(held);
            answer
        })
    }
}

/// Polls a future that may compute for a long time; see [`run_blocking`].
struct BlockingFuture<F>(Pin<Box<F>>);

impl<F: Future> Future for BlockingFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = self.0.as_mut();
        run_blocking(|| inner.poll(context))
    }
}

/// Runs a long computation after moving the other tasks of this thread to another one.
fn run_blocking<T>(compute: impl FnOnce() -> T) -> T {
    // A single-threaded runtime has no thread to move them to.
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(compute)
    } else {
        compute()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use http::Response;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio_stream::StreamExt as _;
    use tonic::{Code, Status};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    use super::*;
    use crate::grpc::middleware::With;

    const GET: &str = "/contextd.v1.SessionService/GetSession";
    const CHECK: &str = "/grpc.health.v1.Health/Check";

    fn config() -> ServerConfig {
        ServerConfig {
            max_request_bytes: 4_096,
            request_timeout: Duration::from_secs(1),
            max_request_memory_bytes: 10_000,
            max_large_requests: 1,
            ..ServerConfig::default()
        }
    }

    fn caller(tenant: &str) -> Principal {
        Principal { tenant: TenantId::new(tenant), ..crate::auth::anonymous() }
    }

    /// A body of these frames, which never ends if `ends` is false.
    fn body(pieces: Vec<Vec<u8>>, ends: bool) -> Body {
        let pieces = pieces.into_iter().map(|piece| Ok::<_, Status>(Frame::data(Bytes::from(piece))));
        let pieces = tokio_stream::iter(pieces);
        if ends {
            Body::new(StreamBody::new(pieces))
        } else {
            Body::new(StreamBody::new(pieces.chain(tokio_stream::pending())))
        }
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0][..], &length[..], message].concat()
    }

    /// The number of bytes that the handler received, or the code of the rejection.
    async fn read(bodies: &RequestBodies, path: &str, body: Body) -> Result<usize, Code> {
        let handler = service_fn(|request: Request<Body>| async move {
            let bytes = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::new(Body::new(" ".repeat(bytes.len()))))
        });
        let mut request = Request::builder().uri(path).body(body).unwrap();
        if path == GET {
            request.extensions_mut().insert(caller("tenant"));
        }
        let answer = With(bodies.clone()).layer(handler).oneshot(request).await.unwrap();
        match Status::from_header_map(answer.headers()) {
            Some(status) => Err(status.code()),
            None => Ok(usize::try_from(answer.body().size_hint().lower()).unwrap()),
        }
    }

    #[tokio::test]
    async fn a_request_is_handed_over_whole_in_its_time_and_up_to_its_size() {
        let bodies = RequestBodies::new(config(), true);
        let message = framed(&[0x0a, 1, b's']);
        let byte_by_byte: Vec<Vec<u8>> = message.iter().map(|byte| vec![*byte]).collect();
        let size = message.len();
        for (pieces, ends, expected) in [
            (vec![message.clone()], true, Ok(size)),
            (byte_by_byte, true, Ok(size)),
            (vec![], true, Ok(0)),
            // A second message is not passed on.
            (vec![message.clone(), framed(&[0; 2_000])], true, Ok(size)),
            // The message is complete, but the client does not end its stream.
            (vec![message.clone()], false, Err(Code::DeadlineExceeded)),
            (vec![message[..6].to_vec()], false, Err(Code::DeadlineExceeded)),
            (vec![framed(&[0; 4_097])], true, Err(Code::ResourceExhausted)),
            // Rejected by the length in its prefix.
            (vec![vec![0, 0xff, 0, 0, 0]], false, Err(Code::ResourceExhausted)),
            (vec![b"{}".to_vec()], true, Err(Code::InvalidArgument)),
            (vec![vec![0]; 5_000], true, Err(Code::ResourceExhausted)),
        ] {
            assert_eq!(read(&bodies, GET, body(pieces, ends)).await, expected);
        }
    }

    #[tokio::test]
    async fn the_health_service_reads_a_kibibyte() {
        let bodies = RequestBodies::new(config(), true);
        let check = async |size: usize, expected: Result<usize, Code>| {
            let body = body(vec![framed(&vec![0; size])], true);
            assert_eq!(read(&bodies, CHECK, body).await, expected, "{size}");
        };
        check(0, Ok(MESSAGE_PREFIX_BYTES)).await;
        check(1_024, Ok(1_024 + MESSAGE_PREFIX_BYTES)).await;
        check(1_025, Err(Code::ResourceExhausted)).await;
    }

    #[tokio::test]
    async fn requests_of_one_tenant_that_do_not_end_leave_memory_to_others() {
        let bodies = RequestBodies::new(ServerConfig { request_timeout: Duration::from_hours(1), ..config() }, true);
        let stalled = |tenant: &str| {
            let piece = framed(&vec![0; 4_000])[..3_000].to_vec();
            let mut request = Request::builder().uri(GET).body(body(vec![piece], false)).unwrap();
            request.extensions_mut().insert(caller(tenant));
            let bodies = bodies.clone();
            tokio::spawn(async move { bodies.read(request, 4_096).await.is_err() })
        };
        let held: Vec<_> = (0..3).map(|_| stalled("busy")).collect();
        tokio::task::yield_now().await;
        assert!(held.iter().all(|reading| !reading.is_finished()));
        assert!(stalled("busy").await.unwrap(), "it took all of the memory");
        // A small request of another tenant is still read.
        assert_eq!(read(&bodies, GET, body(vec![framed(&[])], true)).await, Ok(MESSAGE_PREFIX_BYTES));
    }
}
