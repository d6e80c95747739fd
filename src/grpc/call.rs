//! Logs one line for each call when it ends: the caller, the session and turn or the tenant and key that it
//! is about, its status code and duration. Calls that are not RPCs of this API, such as probes, are logged at
//! debug level. `audit` is true for calls that may change something and for calls that were denied: these
//! have a separate target and are written at any log level. Calls rejected because of overload, or because
//! the caller has no valid credential, share lines (see [`super::rejection_log`]).

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::bytes::Bytes;
use tokio::time::Instant;
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt as _;

use super::{
    access::{self, Method},
    connection::{OpenCall, Peer},
    middleware::{Answer, Middleware, Next},
    rejection_log::{CALLS, RejectionLog},
    request_id::{self, MAX_REQUEST_ID_CHARS, REQUEST_ID},
    status::Overloaded,
};
use crate::{
    auth::Denied,
    model::{Access, Principal},
    telemetry::{AUDIT, Metrics, Span, Trace, Traces},
};

/// Characters of an RPC name that are logged.
const MAX_METHOD_CHARS: usize = 200;
/// RPCs that the server implements but that are not part of this API.
const HEALTH: [&str; 2] = ["grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"];
/// Maximum number of unauthenticated calls per second that get a line each.
const UNAUTHENTICATED_IN_FULL: u64 = 10;
/// Writes the log line of a call. A macro, because the target of a tracing event must be constant.
macro_rules! line {
    ($target:expr, $call:expr, $code:expr, $ids:expr, $audit:literal) => {{
        let Call {
            id,
            method: _,
            name,
            remote,
            begun,
            caller,
            session,
            turn,
            managed_tenant,
            managed_key,
            denied,
            _open: _,
        } = $call;
        tracing::info!(
            target: $target,
            audit = $audit,
            rpc.method = %name,
            rpc.code = code_name($code),
            duration_ms = begun.elapsed().as_micros() as f64 / 1000.0, // with microsecond precision
            request.id = %id,
            tenant = caller.get().map(|caller| caller.tenant.as_str()),
            subject = caller.get().map(|caller| caller.subject.as_str()),
            session.id = session.get(),
            turn.id = turn.get(),
            target.tenant = managed_tenant.get(),
            target.key = managed_key.get(),
            client.address = %remote,
            reason = denied.get().map(ToString::to_string),
            trace_id = $ids.as_ref().map(|(trace, _)| trace),
            span_id = $ids.as_ref().map(|(_, span)| span),
            "call"
        );
    }};
}

/// A call as it will be logged. Travels in the request's extensions.
#[derive(Debug)]
pub struct Call {
    id: String,
    /// The RPC, if it is part of this API.
    method: Option<&'static Method>,
    /// The name of the RPC, cut to [`MAX_METHOD_CHARS`] characters if it is unknown.
    name: Cow<'static, str>,
    remote: String,
    begun: Instant,
    caller: OnceLock<Principal>,
    session: OnceLock<String>,
    turn: OnceLock<String>,
    managed_tenant: OnceLock<String>,
    managed_key: OnceLock<String>,
    denied: OnceLock<Denied>,
    _open: Option<OpenCall>,
}

impl Call {
    fn of<Q>(request: &Request<Q>) -> Self {
        let path = request.uri().path();
        let method = access::method(path);
        let peer = request.extensions().get::<Peer>();
        Self {
            id: request_id::of(request.headers()),
            method,
            name: name(path, method),
            remote: peer.map(Peer::address).unwrap_or_default(),
            begun: Instant::now(),
            caller: OnceLock::new(),
            session: OnceLock::new(),
            turn: OnceLock::new(),
            managed_tenant: OnceLock::new(),
            managed_key: OnceLock::new(),
            denied: OnceLock::new(),
            _open: peer.map(Peer::begin_call),
        }
    }

    /// Records the caller.
    pub fn record_caller(&self, caller: &Principal) {
        let _ = self.caller.set(caller.clone());
    }

    /// Records the session and the turn that the request names. Either may be empty.
    pub fn record_session_and_turn(&self, session: &str, turn: &str) {
        note(&self.session, session);
        note(&self.turn, turn);
    }

    /// Records the tenant and the API key that the call manages. Either may be empty.
    pub fn record_managed(&self, tenant: &str, key: &str) {
        note(&self.managed_tenant, tenant);
        note(&self.managed_key, key);
    }

    /// Records why no caller was identified.
    pub fn record_denial(&self, why: Denied) {
        let _ = self.denied.set(why);
    }

    /// The name of the RPC. Returns `None` if the server does not implement it.
    fn known_method(&self) -> Option<&'static str> {
        match &self.name {
            Cow::Borrowed(name) => Some(name),
            Cow::Owned(_) => None,
        }
    }

    /// The reason, for metrics, of a rejection that depends on the caller or on the time: the reason of the
    /// status, or what was wrong with the credential of an unauthenticated caller. Returns `None` for other
    /// statuses.
    fn rejection(&self, status: &Status) -> Option<String> {
        let code = status.code();
        if code == Code::Unauthenticated {
            return Some(self.denied.get().map_or("unauthenticated", |denied| denied.name()).to_owned());
        }
        let depends = matches!(code, Code::PermissionDenied | Code::ResourceExhausted | Code::Unavailable);
        let reason = || status.get_details_error_info().map(|info| info.reason.to_lowercase());
        depends.then(|| reason().unwrap_or_else(|| code_name(code).to_lowercase()))
    }

    /// Whether the call is audited. Returns `None` for a call that is not an RPC of this API and was not
    /// denied.
    fn is_audited(&self, code: Code) -> Option<bool> {
        let refused = matches!(code, Code::Unauthenticated | Code::PermissionDenied);
        let Some(method) = self.method else {
            return refused.then_some(true);
        };
        let changes = method.access().is_some_and(|access| access > Access::Read);
        Some(refused || changes)
    }

    fn log(&self, code: Code, ids: Option<(String, String)>) {
        match self.is_audited(code) {
            Some(true) => line!(AUDIT, self, code, ids, true),
            Some(false) => line!(CALLS, self, code, ids, false),
            None => {
                let code = code_name(code);
                tracing::debug!(target: CALLS, audit = false, rpc.method = %self.name, rpc.code = code, "call");
            }
        }
    }
}

/// Records the first non-empty id that it gets.
fn note(place: &OnceLock<String>, id: &str) {
    if !id.is_empty() {
        let _ = place.set(id.chars().take(MAX_REQUEST_ID_CHARS).collect());
    }
}

/// Records and logs calls.
#[derive(Debug, Clone)]
pub struct CallLog {
    metrics: Metrics,
    traces: Traces,
    overload: Arc<RejectionLog>,
    unauthenticated: Arc<RejectionLog>,
}

impl CallLog {
    /// Calls are counted in `metrics`, and their spans made in `traces`.
    pub fn new(metrics: Metrics, traces: Traces) -> Self {
        Self {
            metrics,
            traces,
            overload: Arc::new(RejectionLog::new(Overloaded::REASON, 0)),
            unauthenticated: Arc::new(RejectionLog::new("unauthenticated", UNAUTHENTICATED_IN_FULL)),
        }
    }
}

impl<Q> Middleware<Q> for CallLog {
    fn handle<N: Next<Q>>(&self, mut request: Request<Q>, next: &mut N) -> Answer<N::Error> {
        let call = Arc::new(Call::of(&request));
        request.extensions_mut().insert(Arc::clone(&call));
        let caller = self.traces.of_caller(request.headers());
        let mut line = CallLogLine::new(call, &caller, self);
        let trace = line.trace(caller);
        let answer = next.call(request);
        let doing = request_id::scope(line.call.id.clone(), async move {
            let mut answer = answer.await?;
            if let Some((name, value)) = Trace::current().traceparent() {
                answer.headers_mut().insert(name, value);
            }
            if let Ok(id) = HeaderValue::from_str(&line.call.id) {
                answer.headers_mut().insert(REQUEST_ID, id);
            }
            line.record_response(&answer);
            Ok(answer.map(|body| Body::new(body.map_frame(move |frame| line.record_trailers(frame)))))
        });
        Box::pin(trace.scope(doing))
    }
}

/// The name of the RPC at a path. The path of an unknown RPC is cut to [`MAX_METHOD_CHARS`] characters.
fn name(path: &str, method: Option<&'static Method>) -> Cow<'static, str> {
    let path = path.trim_start_matches('/');
    let of_others = || HEALTH.into_iter().find(|known| *known == path);
    match method.map(Method::name).or_else(of_others) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(path.chars().take(MAX_METHOD_CHARS).collect()),
    }
}

/// Logs the call on drop, because a cancelled call never gets a status code.
struct CallLogLine {
    call: Arc<Call>,
    code: Option<Code>,
    is_overload: bool,
    metrics: Metrics,
    overload: Arc<RejectionLog>,
    unauthenticated: Arc<RejectionLog>,
    /// `None` for probes.
    span: Option<Span>,
}

impl CallLogLine {
    fn new(call: Arc<Call>, caller: &Trace, calls: &CallLog) -> Self {
        let method = call.known_method();
        calls.metrics.rpc_started(method);
        let is_probe = method.is_some_and(|method| HEALTH.contains(&method));
        Self {
            span: (!is_probe).then(|| caller.rpc(method)),
            call,
            code: None,
            is_overload: false,
            metrics: calls.metrics.clone(),
            overload: Arc::clone(&calls.overload),
            unauthenticated: Arc::clone(&calls.unauthenticated),
        }
    }

    /// The trace context in which the call is handled.
    fn trace(&self, caller: Trace) -> Trace {
        self.span.as_ref().map_or(caller, |span| span.trace().clone())
    }

    /// Records the status of a response that has it in its headers.
    fn record_response<B>(&mut self, answer: &Response<B>) {
        // Take the status of our own rejections from the extensions, which saves decoding the headers.
        if answer.extensions().get::<Overloaded>().is_some() {
            self.is_overload = true;
            self.code = Some(Overloaded::CODE);
            self.metrics.rpc_rejected(Overloaded::REASON);
        } else if let Some(status) = answer.extensions().get::<Status>() {
            self.record_status(status);
        } else {
            self.record_headers(answer.headers());
        }
    }

    fn record_headers(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.record_status(&status);
        }
    }

    /// Records the status of a response that has it after its body.
    fn record_trailers(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(trailers) = frame.trailers_ref() {
            self.record_headers(trailers);
        }
        frame
    }

    fn record_status(&mut self, status: &Status) {
        self.code = Some(status.code());
        if let Some(reason) = self.call.rejection(status) {
            self.metrics.rpc_rejected(&reason);
        }
    }
}

impl Drop for CallLogLine {
    fn drop(&mut self) {
        let code = self.code.unwrap_or(Code::Cancelled);
        let took = self.call.begun.elapsed();
        self.metrics.rpc_ended(self.call.known_method(), code_name(code), took);
        let ids = self.span.as_ref().and_then(|span| span.trace().ids());
        if let Some(span) = &self.span {
            span.answered(code_name(code), is_fault(code));
        }
        let is_stranger = code == Code::Unauthenticated && self.call.caller.get().is_none();
        let gets_line = match (self.is_overload, is_stranger) {
            (true, _) => self.overload.gets_line(),
            (false, true) => self.unauthenticated.gets_line(),
            (false, false) => true,
        };
        if gets_line {
            self.call.log(code, ids);
        }
        self.overload.log_if_due();
        self.unauthenticated.log_if_due();
    }
}

/// Whether a code counts as an error of the server, by the OpenTelemetry conventions for RPC.
fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// The code as the OpenTelemetry conventions for RPC spell it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
