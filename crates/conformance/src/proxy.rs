//! The proxy between the host and the server. It decodes the messages of both, records them, and injects faults
//! according to its plan.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use anyhow::Context as _;
use futures_util::stream;
use http::{HeaderMap, Request, Response, header::HOST};
use http_body::{Body as _, Frame};
use prost::{Message as _, bytes::Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::{
    Status,
    body::Body,
    transport::{Channel, server::Connected},
};
use tower::{Service as _, ServiceExt as _};

use super::{
    fault::{Action, FailureMode, Plan, StreamAction, Verdict},
    frames::{Frames, framed},
    record::{self, Call, Entry, Record},
    server::{Replica, Servers},
};
use contextd_proto::{self as pb, event::Payload};

/// Maximum bytes of a request.
const MAX_REQUEST_BYTES: usize = 8 * 1024 * 1024;
/// How long messages may take to arrive before a connection is reset.
const RESET_DELAY: Duration = Duration::from_millis(60);
/// Maximum number of messages buffered for a host.
const MAX_BUFFERED_MESSAGES: usize = 16;
/// How long a tool's results are held back for the kit's action during the tool call.
const ACTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest heartbeat interval, and the default if the host sets none.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a host may wait in silence, in addition to four heartbeats.
const GRACE: Duration = Duration::from_secs(5);
/// An unknown field of a message, and an unknown enum value.
const UNKNOWN_FIELD: &[u8] = &[0xba, 0x3e, 3, b'n', b'e', b'w'];
const UNKNOWN_VALUE: i32 = 999;

/// A proxy for one run. Dropping it stops the proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    run: Arc<Run>,
    _stop: DropGuard,
}

impl Proxy {
    /// Starts the proxy, in front of `replica` if one is given.
    pub(super) async fn start(
        session: &str,
        servers: &Servers,
        replica: Option<Replica>,
        plan: Plan,
        record: Arc<Record>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("cannot listen")?;
        let address = listener.local_addr()?;
        let upstream = match &replica {
            Some(replica) => replica.channel.clone(),
            None => servers.channel(),
        };
        let stop = CancellationToken::new();
        let run = Arc::new(Run {
            session: session.to_owned(),
            plan,
            record,
            upstream: Mutex::new(upstream),
            direct: servers.channel(),
            replica: tokio::sync::Mutex::new(replica),
            connections: Mutex::default(),
            given_up: CancellationToken::new(),
            acted: CancellationToken::new(),
        });
        let serving = serve(listener, Arc::clone(&run));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Ok(Self { address, run, _stop: stop.drop_guard() })
    }

    /// Records a line of the driver and runs the actions for its tool.
    pub(super) async fn line(&self, line: record::Line) {
        let tool = line.tool.clone();
        self.run.record.push(Entry::Line(line));
        if let Some(tool) = tool {
            let actions = self.run.plan.on_tool(&tool);
            let acts = !actions.is_empty();
            for action in actions {
                self.run.perform(action).await;
            }
            if acts {
                self.run.acted.cancel();
            }
        }
    }

    /// Records output of the driver that is not valid.
    pub(super) fn garbage(&self, text: String) {
        self.run.record.push(Entry::Garbage(text));
    }

    /// Resolves when the host has stayed in a silent stream for too long.
    pub(super) async fn given_up(&self) {
        self.run.given_up.cancelled().await;
    }
}

#[derive(Debug)]
struct Run {
    session: String,
    plan: Plan,
    record: Arc<Record>,
    upstream: Mutex<Channel>,
    direct: Channel,
    replica: tokio::sync::Mutex<Option<Replica>>,
    connections: Mutex<CancellationToken>,
    given_up: CancellationToken,
    /// Fires when the actions during a tool call are done.
    acted: CancellationToken,
}

async fn serve(listener: TcpListener, run: Arc<Run>) {
    let accepting = Arc::clone(&run);
    let incoming = stream::unfold((listener, accepting), async |(listener, run)| {
        let accepted = listener.accept().await;
        let connection =
            accepted.map(|(stream, _)| Cuttable { stream, cut: Box::pin(run.connections().clone().cancelled_owned()) });
        Some((connection, (listener, run)))
    });
    let service = tower::service_fn(move |request| {
        let run = Arc::clone(&run);
        async move { Ok::<_, Infallible>(run.answer(request).await) }
    });
    let served = tonic::transport::Server::builder().serve_with_incoming(service, incoming).await;
    if let Err(error) = served {
        tracing::error!(%error, "the proxy stopped");
    }
}

impl Run {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let Some(body) = collect(body).await else {
            return FailureMode::Unavailable.status().into_http();
        };
        let call = record::call(head.uri.path(), &body);
        self.record.push(Entry::Call(call.clone()));
        let verdict = self.plan.on_call(&call);
        if let Verdict::Refuse(how) = verdict {
            self.note(format!("{} in response to {}", how.words(), head.uri.path()));
            return self.fail(how).await;
        }
        if self.plan.holds(&call) {
            // Hold back the result: for the server the tool must still be running, however fast it was.
            let _ = timeout(ACTION_TIMEOUT, self.acted.cancelled()).await;
        }
        let path = head.uri.path().to_owned();
        let (upstream, gone) = mpsc::channel(1);
        let _ = upstream.try_send(Ok(Frame::data(Bytes::from(body))));
        drop(upstream);
        let mut request = Request::from_parts(head, Body::new(Channelled(gone)));
        request.headers_mut().remove("grpc-accept-encoding");
        request.headers_mut().remove(HOST);
        let Ok(response) = self.forward(request).await else {
            return FailureMode::Unavailable.status().into_http();
        };
        let (head, mut body) = response.into_parts();
        if let Verdict::Lose(how) = verdict {
            // The call has run: the stream has begun, or the response has arrived.
            while let Some(Ok(_)) = frame(&mut body).await {
                if call.streams() {
                    break;
                }
            }
            self.note(format!("{} instead of the response to {path}", how.words()));
            return self.fail(how).await;
        }
        if !call.streams() {
            return Response::from_parts(head, body);
        }
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_MESSAGES);
        tokio::spawn(self.pump(body, sender, silence_of(&call)));
        Response::from_parts(head, Body::new(Channelled(receiver)))
    }

    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, tonic::transport::Error> {
        let mut channel = self.upstream();
        channel.ready().await?.call(request).await
    }

    async fn fail(&self, how: FailureMode) -> Response<Body> {
        if how == FailureMode::Reset {
            self.cut();
        }
        how.status().into_http()
    }

    /// Forwards a stream message by message.
    async fn pump(self: Arc<Self>, mut body: Body, host: Sender, patience: Duration) {
        let mut frames = Frames::default();
        loop {
            let next = tokio::select! {
                next = frame(&mut body) => next,
                () = host.closed() => return,
            };
            let Some(Ok(next)) = next else {
                if next.is_some() {
                    let _ = host.send(Ok(trailers(FailureMode::Unavailable))).await;
                }
                return;
            };
            let data = match next.into_data() {
                Ok(data) => data,
                Err(trailers) => {
                    let _ = host.send(Ok(trailers)).await;
                    continue;
                }
            };
            frames.push(&data);
            while let Some(message) = frames.next() {
                match self.deliver(message, &host).await {
                    StreamAction::Continue => {}
                    StreamAction::Cut(how) => return self.break_off(how, &host).await,
                    StreamAction::Silence => return self.be_silent(patience, &host).await,
                }
            }
        }
    }

    async fn deliver(&self, message: Bytes, host: &Sender) -> StreamAction {
        // ExecuteTurnResponse and WatchEventsResponse have the same wire format.
        let read = pb::ExecuteTurnResponse::decode(message.clone());
        let Some(event) = read.ok().and_then(|response| response.event) else {
            let _ = host.send(Ok(Frame::data(framed(&message)))).await;
            return StreamAction::Continue;
        };
        let (actions, after) = self.plan.on_event(&event);
        for action in actions {
            self.perform(action).await;
        }
        let data = match self.plan.alters() {
            true => altered(&event),
            false => framed(&message),
        };
        if let Ok(place) = host.reserve().await {
            // Record first: the host may act on it immediately.
            self.record.push(Entry::Sent(Box::new(event)));
            place.send(Ok(Frame::data(data)));
        }
        after
    }

    async fn break_off(&self, how: FailureMode, host: &Sender) {
        let number = record::sent(&self.record.entries());
        self.note(format!("{} after message {number}", how.words()));
        if how == FailureMode::Reset {
            sleep(RESET_DELAY).await;
            self.cut();
        } else {
            let _ = host.send(Ok(trailers(how))).await;
        }
    }

    async fn be_silent(&self, patience: Duration, host: &Sender) {
        self.record.push(Entry::Silent(patience));
        if timeout(patience, host.closed()).await.is_ok() {
            self.record.push(Entry::Left);
        } else {
            self.given_up.cancel();
        }
    }

    async fn perform(&self, action: Action) {
        let done = match action {
            Action::Enqueue(text, delivery) => {
                self.note(format!("a queued message with {}", delivery.as_str_name()));
                self.enqueue(text, delivery).await
            }
            Action::Switch(model) => {
                self.note(format!("a switch to model {model}"));
                self.switch(model).await
            }
            Action::Kill => {
                self.note("a kill of the replica that ran the turn".to_owned());
                *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = self.direct.clone();
                if let Some(replica) = self.replica.lock().await.take() {
                    replica.kill().await;
                }
                Ok(())
            }
        };
        if let Err(status) = done {
            self.record.push(Entry::Fault(format!("a failure of the kit: {status}")));
        }
    }

    async fn enqueue(&self, text: &str, delivery: pb::Delivery) -> Result<(), Status> {
        let request = pb::EnqueueMessageRequest {
            session_id: self.session.clone(),
            message: Some(pb::InputMessage {
                parts: vec![pb::Part {
                    content: Some(pb::part::Content::Text(text.to_owned())),
                    ..pb::Part::default()
                }],
                ..pb::InputMessage::default()
            }),
            delivery: delivery.into(),
            ..pb::EnqueueMessageRequest::default()
        };
        let mut queue = pb::queue_service_client::QueueServiceClient::new(self.direct.clone());
        queue.enqueue_message(request).await.map(drop)
    }

    async fn switch(&self, model: &str) -> Result<(), Status> {
        let request = pb::UpdateSessionRequest {
            session: Some(pb::Session {
                session_id: self.session.clone(),
                model: model.to_owned(),
                ..pb::Session::default()
            }),
            update_mask: Some(prost_types::FieldMask { paths: vec!["model".to_owned()] }),
            ..pb::UpdateSessionRequest::default()
        };
        let mut sessions = pb::session_service_client::SessionServiceClient::new(self.direct.clone());
        sessions.update_session(request).await.map(drop)
    }

    fn note(&self, what: String) {
        self.record.push(Entry::Fault(what));
    }

    /// Resets every connection of the host.
    fn cut(&self) {
        std::mem::take(&mut *self.connections()).cancel();
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, CancellationToken> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upstream(&self) -> Channel {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How long the host may wait in a silent stream.
fn silence_of(call: &Call) -> Duration {
    let options = match call {
        Call::Execute(request) => request.stream.as_ref(),
        Call::Watch(request) => request.stream.as_ref(),
        Call::Submit(_) | Call::Other => None,
    };
    let asked = options.and_then(|options| Duration::try_from(options.heartbeat_interval?).ok());
    asked.unwrap_or(HEARTBEAT).min(HEARTBEAT) * 4 + GRACE
}

/// Adds what a newer server could send to an event: unknown fields and values, and a durable event of an unknown kind.
fn altered(event: &pb::Event) -> Bytes {
    let mut event = event.clone();
    if let Some(Payload::UsageRecorded(_)) = event.payload {
        event.payload = None;
    } else if let Some(Payload::TurnCompleted(completed)) = &mut event.payload {
        completed.reason = UNKNOWN_VALUE;
    }
    let mut inner = event.encode_to_vec();
    inner.extend_from_slice(UNKNOWN_FIELD);
    let mut outer = vec![0x0a];
    prost::encoding::encode_varint(inner.len() as u64, &mut outer);
    outer.extend_from_slice(&inner);
    outer.extend_from_slice(UNKNOWN_FIELD);
    framed(&outer)
}

fn trailers(how: FailureMode) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    // These statuses always fit into headers.
    let _ = how.status().add_header(&mut headers);
    Frame::trailers(headers)
}

async fn frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
    poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

async fn collect(mut body: Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(next) = frame(&mut body).await {
        if let Ok(data) = next.ok()?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_REQUEST_BYTES {
            return None;
        }
    }
    Some(bytes)
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, Status>>;

/// A body that is received through a channel.
struct Channelled(mpsc::Receiver<Result<Frame<Bytes>, Status>>);

impl http_body::Body for Channelled {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_recv(context)
    }
}

/// A connection of the host that can be reset.
struct Cuttable {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Cuttable {
    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.stream)
    }
}

impl Connected for Cuttable {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            // With zero linger, closing the socket sends a reset.
            self.stream.set_zero_linger()?;
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream().poll_write(context, bytes));
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
