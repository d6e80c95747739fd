//! A model service that a test plays: real HTTP/1.1 on a port of its own, answers planned one by
//! one, every request kept.
//!
//! ```ignore
//! let upstream = Upstream::start().await;
//! upstream.answer(Reply::events(recorded("openai-chat/greeting.sse")));
//! let host = Host::with(upstream.options("openai")).await;
//! host.run(turn("s", "main/gpt-4o", "Hello")).await;
//! assert_eq!(upstream.requests()[0].json["model"], "gpt-4o");
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use contextd::model::Declared;
use contextd::provider::{
    http::Settings,
    openai::{OpenAi, dialect},
};
use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, body::Frame, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Options, events::PATIENCE, strict};

/// The key that clients of [`Upstream::provider`] send.
pub const KEY: &str = "sk-test-key-that-nobody-may-see";

/// A model service. It ends with the test.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its path and query.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body as JSON.
    pub json: Value,
    /// Its body as it came.
    pub body: String,
}

/// A planned answer.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    hold: Option<String>,
    moves: Vec<Move>,
}

#[derive(Debug, Clone)]
enum Move {
    Send(Bytes),
    Hold(String),
    Cut,
    Stall,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    /// What is answered to each request for a path, and how many came.
    lists: Mutex<BTreeMap<String, (Reply, usize)>>,
    requests: Mutex<Vec<Received>>,
    released: watch::Sender<BTreeSet<String>>,
    aborted: watch::Sender<usize>,
    /// What it refused to read, as a server with a strict template does.
    refused: Mutex<Vec<String>>,
    strict: AtomicBool,
    asked: watch::Sender<usize>,
}

/// A body from `tests/fixtures/providers`; payloads without framing get it.
pub fn recorded(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/providers")
        .join(file);
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !file.ends_with(".chunks.txt") {
        return bytes;
    }
    let lines = String::from_utf8(bytes).unwrap();
    let payloads: Vec<&str> = lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    payloads
        .iter()
        .map(|line| format!("data: {line}\n\n"))
        .collect::<String>()
        .into_bytes()
        .into_iter()
        .chain(*DONE)
        .collect()
}

const DONE: &[u8; 14] = b"data: [DONE]\n\n";

/// The events of an answer that says these words, with usage at its end.
pub fn said(words: &[&str]) -> Vec<u8> {
    let mut body: Vec<u8> = words
        .iter()
        .flat_map(|word| event(&json!({"content": word})))
        .collect();
    body.extend(finished("stop"));
    body
}

/// One event with this delta.
pub fn event(delta: &Value) -> Vec<u8> {
    let chunk = json!({"id": "chatcmpl-1", "model": "gpt-4o-2024", "choices": [{"index": 0, "delta": delta}]});
    format!("data: {chunk}\n\n").into_bytes()
}

/// The end of an answer: why, usage, and the marker.
pub fn finished(reason: &str) -> Vec<u8> {
    let end =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": null});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}});
    let mut body = format!("data: {end}\n\ndata: {usage}\n\n").into_bytes();
    body.extend(DONE);
    body
}

impl Reply {
    /// A good answer with these events.
    pub fn events(body: impl Into<Bytes>) -> Self {
        Self::new(200, "text/event-stream").then(body)
    }

    /// An answer of that status with a body in JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json").then(body.to_string())
    }

    /// An answer of that status and type, so far without a body.
    pub fn new(status: u16, content_type: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            hold: None,
            moves: Vec::new(),
        }
        .header("content-type", content_type)
    }

    /// An error as OpenAI writes it.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self::json(
            status,
            &json!({"error": {"message": message, "type": code, "param": null, "code": code}}),
        )
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Nothing of it comes, not even its head, before the signal is released.
    #[must_use]
    pub fn after(mut self, signal: &str) -> Self {
        self.hold = Some(signal.to_owned());
        self
    }

    /// More of the body.
    #[must_use]
    pub fn then(self, body: impl Into<Bytes>) -> Self {
        self.moving(Move::Send(body.into()))
    }

    /// More of the body, in pieces of so many bytes.
    #[must_use]
    pub fn pieces(mut self, body: &[u8], size: usize) -> Self {
        self.moves.extend(
            body.chunks(size)
                .map(|piece| Move::Send(Bytes::copy_from_slice(piece))),
        );
        self
    }

    /// Nothing more comes before the signal is released.
    #[must_use]
    pub fn hold(self, signal: &str) -> Self {
        self.moving(Move::Hold(signal.to_owned()))
    }

    /// The connection breaks here.
    #[must_use]
    pub fn cut(self) -> Self {
        self.moving(Move::Cut)
    }

    /// Nothing more ever comes.
    #[must_use]
    pub fn stall(self) -> Self {
        self.moving(Move::Stall)
    }

    fn moving(mut self, next: Move) -> Self {
        self.moves.push(next);
        self
    }
}

impl Upstream {
    /// A service on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let stop = CancellationToken::new();
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(accept(listener, Arc::clone(&shared))),
        );
        Self {
            address,
            shared,
            stop,
        }
    }

    /// Plans the answer to the next request that has none yet.
    pub fn answer(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// Answers each request for a path like this from now on. Such requests are not among
    /// [`Upstream::requests`].
    pub fn list(&self, path: &str, reply: Reply) {
        let mut lists = self.shared.lists.lock().unwrap();
        lists
            .entry(path.to_owned())
            .and_modify(|(planned, _)| *planned = reply.clone())
            .or_insert((reply, 0));
    }

    /// How many requests came for a path that [`Upstream::list`] answers.
    pub fn listed(&self, path: &str) -> usize {
        let lists = self.shared.lists.lock().unwrap();
        lists.get(path).map_or(0, |(_, times)| *times)
    }

    /// Lets answers go on that hold for the signal, now and from now on.
    pub fn release(&self, signal: &str) {
        self.shared
            .released
            .send_modify(|released| released.extend([signal.to_owned()]));
    }

    /// Every request that came, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub async fn asked(&self, times: usize) {
        let mut asked = self.shared.asked.subscribe();
        timeout(PATIENCE, asked.wait_for(|asked| *asked >= times))
            .await
            .expect("no request came")
            .unwrap();
    }

    /// Waits until clients left so many answers before their end.
    pub async fn left(&self, times: usize) {
        let mut aborted = self.shared.aborted.subscribe();
        timeout(PATIENCE, aborted.wait_for(|aborted| *aborted >= times))
            .await
            .expect("nobody left")
            .unwrap();
    }

    /// Where it is, for a configuration.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How a client reaches it, with [`KEY`].
    pub fn settings(&self) -> Settings {
        Settings {
            base_url: self.base_url(),
            headers: vec![(
                hyper::header::AUTHORIZATION,
                SecretString::from(format!("Bearer {KEY}")),
            )],
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: PATIENCE * 2,
            stall_timeout: PATIENCE * 2,
            max_request_bytes: None,
        }
    }

    /// From now on it takes only what strict chat templates take, and fails the test of whoever
    /// sent anything else.
    pub fn strict(&self) {
        self.shared.strict.store(true, Ordering::Relaxed);
    }

    /// A provider of that configured name that calls it, with a model `gpt-4o`. Services whose
    /// template may be strict are played by strict ones.
    pub fn provider(&self, name: &str, dialect: &str) -> OpenAi {
        if dialect::named(dialect).is_some_and(|dialect| dialect.turns == dialect::Turns::Strict) {
            self.strict();
        }
        provider(name, self.settings(), dialect)
    }

    /// The usual replica with this service as the provider `main`.
    pub fn options(&self, dialect: &str) -> Options {
        Options::default().provider("main", Arc::new(self.provider("main", dialect)))
    }
}

/// A provider; what it has is not declared.
pub fn provider(name: &str, settings: Settings, dialect: &str) -> OpenAi {
    declaring(name, settings, dialect, &[])
}

/// A provider whose operator declares the windows of these models.
pub fn declaring(name: &str, settings: Settings, dialect: &str, windows: &[(&str, u32)]) -> OpenAi {
    let declared = |(model, window): &(&str, u32)| {
        (
            (*model).to_owned(),
            Declared {
                context_window: Some(*window),
                ..Declared::default()
            },
        )
    };
    OpenAi::new(
        name,
        settings,
        dialect::named(dialect),
        windows.iter().map(declared).collect(),
    )
    .unwrap()
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.cancel();
        let refused = self.shared.refused.lock().unwrap();
        assert!(
            refused.is_empty() || std::thread::panicking(),
            "refused: {refused:#?}"
        );
    }
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| respond(request, Arc::clone(&shared)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
    }
}

async fn respond(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if let Some(reply) = listed(&shared, &head) {
        return Ok(played(reply, shared).await);
    }
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    shared.requests.lock().unwrap().push(Received {
        path: head.uri.to_string(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        json: serde_json::from_slice(&body).unwrap_or_default(),
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    shared.asked.send_modify(|asked| *asked += 1);
    let refusal =
        strict::refusal(&serde_json::from_slice::<Value>(&body).unwrap_or_default()["messages"]);
    if let Some(why) = refusal.filter(|_| shared.strict.load(Ordering::Relaxed)) {
        let sent = String::from_utf8_lossy(&body).into_owned();
        shared
            .refused
            .lock()
            .unwrap()
            .push(format!("{why}: {sent}"));
    }
    let planned = shared.replies.lock().unwrap().pop_front();
    let unplanned = || {
        Reply::error(
            400,
            "unplanned",
            "the test planned no answer to this request",
        )
    };
    Ok(played(planned.unwrap_or_else(unplanned), shared).await)
}

/// The answer to a request for a list; every `GET` is one.
fn listed(shared: &Shared, head: &hyper::http::request::Parts) -> Option<Reply> {
    let mut lists = shared.lists.lock().unwrap();
    match lists.get_mut(&head.uri.to_string()) {
        Some((reply, times)) => {
            *times += 1;
            Some(reply.clone())
        }
        None if head.method == hyper::Method::GET => {
            Some(Reply::error(404, "not_found", "there is no such list"))
        }
        None => None,
    }
}

async fn played(reply: Reply, shared: Arc<Shared>) -> Response<Body> {
    let Reply {
        status,
        headers,
        hold,
        moves,
    } = reply;
    let playing = Playing {
        shared,
        moves: moves.into(),
        over: false,
    };
    if let Some(signal) = hold {
        playing.wait_for(&signal).await;
    }
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let frames = stream::unfold(playing, |mut playing| async move {
        Some((playing.next().await?, playing))
    });
    let body = if status == 204 {
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    } else {
        StreamBody::new(frames).boxed_unsync()
    };
    response.body(body).unwrap()
}

/// An answer that is being played.
struct Playing {
    shared: Arc<Shared>,
    moves: VecDeque<Move>,
    over: bool,
}

impl Playing {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, io::Error>> {
        loop {
            match self.moves.pop_front() {
                Some(Move::Send(bytes)) => return Some(Ok(Frame::data(bytes))),
                Some(Move::Hold(signal)) => self.wait_for(&signal).await,
                Some(Move::Cut) => {
                    self.over = true;
                    // What was sent goes out before the connection breaks.
                    tokio::task::yield_now().await;
                    return Some(Err(io::Error::other("cut")));
                }
                Some(Move::Stall) => std::future::pending().await,
                None => {
                    self.over = true;
                    return None;
                }
            }
        }
    }

    async fn wait_for(&self, signal: &str) {
        let mut released = self.shared.released.subscribe();
        released
            .wait_for(|released| released.contains(signal))
            .await
            .unwrap();
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        if !self.over {
            self.shared.aborted.send_modify(|aborted| *aborted += 1);
        }
    }
}
