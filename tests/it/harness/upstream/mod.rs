//! A model service for tests: real HTTP/1.1 on a free port, with responses planned one by one. Every request is kept.
//!
//! ```ignore
//! let upstream = Upstream::start().await;
//! upstream.answer(Reply::events(recorded("openai-chat/greeting.sse")));
//! let host = Host::with(upstream.options("openai")).await;
//! host.run(turn("s", "main/gpt-4o", "Hello")).await;
//! assert_eq!(upstream.requests()[0].json["model"], "gpt-4o");
//! ```
//!
//! Requests are validated as the real API of their path does. A refused request gets the error of that API, and fails
//! the test unless the test expects it.

pub mod anthropic;
pub mod chat;
pub mod gemini;
mod recorded;
mod reply;
pub mod responses;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use contextd::config::HttpConfig;
use contextd::model::DeclaredModel;
use contextd::provider::{
    Provider,
    http::Settings,
    openai::{OpenAi, dialect},
};
use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, body::Frame, body::Incoming, header::HeaderName, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Options, events::TEST_TIMEOUT, strict, validate::Api};
use reply::{Move, halves};

pub use chat::{event, finished, said};
pub use recorded::recorded;
pub use reply::Reply;

/// The key that clients of [`Upstream::provider`] send.
pub const KEY: &str = "sk-test-key-that-nobody-may-see";

/// A model service. It stops at the end of the test.
pub struct Upstream {
    /// The address on which it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Received {
    /// The path and query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as JSON.
    pub json: Value,
    /// The body as received.
    pub body: String,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    /// The response to each request for a path, and the number of such requests.
    lists: Mutex<BTreeMap<String, (Reply, usize)>>,
    requests: Mutex<Vec<Received>>,
    released: watch::Sender<BTreeSet<String>>,
    aborted: watch::Sender<usize>,
    /// The reasons and bodies of refused requests.
    refused: Mutex<Vec<String>>,
    /// Set if the test expects refusals.
    may_refuse: AtomicBool,
    strict: AtomicBool,
    /// The dialect of the service whose specific rules apply; empty for none.
    service: Mutex<String>,
    /// A text that requests may not contain, and the response to such a request.
    refuses: Mutex<Option<(String, Reply)>>,
    /// Whether usage is reported by the size of the request.
    counts: AtomicBool,
    /// The responses sent so far; they contain the signatures that are valid in later requests.
    issued: Mutex<String>,
    asked: watch::Sender<usize>,
}

impl Upstream {
    /// Starts a service on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared))));
        Self { address, shared, stop }
    }

    /// Plans the response to the next request without one.
    pub fn answer(&self, reply: Reply) {
        self.shared.replies.lock().unwrap().push_back(reply);
    }

    /// Sets the response to all requests for a path. Such requests are not in [`Upstream::requests`].
    pub fn list(&self, path: &str, reply: Reply) {
        let mut lists = self.shared.lists.lock().unwrap();
        lists.entry(path.to_owned()).and_modify(|(planned, _)| *planned = reply.clone()).or_insert((reply, 0));
    }

    /// The number of requests for a path of [`Upstream::list`].
    pub fn listed(&self, path: &str) -> usize {
        let lists = self.shared.lists.lock().unwrap();
        lists.get(path).map_or(0, |(_, times)| *times)
    }

    /// Releases a signal: responses that hold for it continue, now and later.
    pub fn release(&self, signal: &str) {
        self.shared.released.send_modify(|released| released.extend([signal.to_owned()]));
    }

    /// All requests, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// The latest request.
    pub fn newest(&self) -> Received {
        let requests = self.shared.requests.lock().unwrap();
        requests.last().expect("no request came").clone()
    }

    /// Drops planned responses that were not used.
    pub fn forget(&self) {
        self.shared.replies.lock().unwrap().clear();
    }

    /// Answers every request that contains `words` with `reply` from now on, instead of the planned response.
    pub fn refuse(&self, words: &str, reply: Reply) {
        *self.shared.refuses.lock().unwrap() = Some((words.to_owned(), reply));
    }

    /// From now on, reports one prompt token for every four bytes of the request, instead of the few tokens of planned
    /// responses.
    pub fn counts(&self) {
        self.shared.counts.store(true, Ordering::Relaxed);
    }

    /// Waits until this number of requests has arrived.
    pub async fn asked(&self, times: usize) {
        let mut asked = self.shared.asked.subscribe();
        timeout(TEST_TIMEOUT, asked.wait_for(|asked| *asked >= times)).await.expect("no request came").unwrap();
    }

    /// Waits until clients have closed this number of responses before their end.
    pub async fn left(&self, times: usize) {
        let mut aborted = self.shared.aborted.subscribe();
        timeout(TEST_TIMEOUT, aborted.wait_for(|aborted| *aborted >= times)).await.expect("nobody left").unwrap();
    }

    /// From now on, refusals do not fail the test; it checks [`Upstream::refused`] itself.
    pub fn expect_refusals(&self) {
        self.shared.may_refuse.store(true, Ordering::Relaxed);
    }

    /// The refused requests in order: the reasons and the bodies.
    pub fn refused(&self) -> Vec<String> {
        self.shared.refused.lock().unwrap().clone()
    }

    /// Accepts a signature, or encrypted reasoning, that the service never sent.
    pub fn knows(&self, signature: &str) {
        self.shared.issued.lock().unwrap().push_str(signature);
    }

    /// The base URL, for a configuration.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The settings of a client, with [`KEY`].
    pub fn settings(&self) -> Settings {
        self.settings_for(Api::Chat)
    }

    /// The settings of a client of that protocol: its base URL, and [`KEY`] if it uses keys.
    pub fn settings_for(&self, api: Api) -> Settings {
        let bearer = (hyper::header::AUTHORIZATION, format!("Bearer {KEY}"));
        let key = |name: &'static str| (HeaderName::from_static(name), KEY.to_owned());
        let (version, (name, value)) = match api {
            Api::Chat | Api::Responses => ("v1", bearer),
            Api::Anthropic => ("v1", key("x-api-key")),
            Api::Gemini => ("v1beta", key("x-goog-api-key")),
        };
        Settings {
            base_url: format!("http://{}/{version}", self.address),
            headers: vec![(name, SecretString::from(value))],
            http: HttpConfig {
                first_byte_timeout: TEST_TIMEOUT * 2,
                stall_timeout: TEST_TIMEOUT * 2,
                ..HttpConfig::default()
            },
        }
    }

    /// From now on, accepts only what strict chat templates accept; any other request fails the test.
    pub fn strict(&self) {
        self.shared.strict.store(true, Ordering::Relaxed);
    }

    /// Drops planned responses that were not used.
    pub fn plans_nothing(&self) {
        self.shared.replies.lock().unwrap().clear();
    }

    /// From now on, also applies the rules that only the service with this Chat Completions dialect has.
    pub fn plays(&self, service: &str) {
        service.clone_into(&mut self.shared.service.lock().unwrap());
    }

    /// A provider with that configured name that calls this service, with a model `gpt-4o`. A dialect whose templates
    /// may be strict makes the service strict.
    pub fn provider(&self, name: &str, dialect: &str) -> OpenAi {
        if dialect::named(dialect).unwrap().message_order == dialect::MessageOrder::Strict {
            self.strict();
        }
        provider(name, self.settings(), dialect)
    }

    /// A default replica with this service as the provider `main`.
    pub fn options(&self, dialect: &str) -> Options {
        calling(self.provider("main", dialect))
    }
}

/// A default replica with any provider as `main`. The provider should be built from [`Upstream::settings_for`] its
/// protocol.
pub fn calling(provider: impl Provider + 'static) -> Options {
    Options::default().provider("main", Arc::new(provider))
}

/// A provider without declared models.
pub fn provider(name: &str, settings: Settings, dialect: &str) -> OpenAi {
    declaring(name, settings, dialect, &[])
}

/// A provider with declared context windows of these models.
pub fn declaring(name: &str, settings: Settings, dialect: &str, windows: &[(&str, u32)]) -> OpenAi {
    let declared = |(model, window): &(&str, u32)| {
        ((*model).to_owned(), DeclaredModel { context_window: Some(*window), ..DeclaredModel::default() })
    };
    OpenAi::new(name, settings, dialect::named(dialect).unwrap(), windows.iter().map(declared).collect()).unwrap()
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.cancel();
        let refused = self.shared.refused.lock().unwrap();
        let expected = self.shared.may_refuse.load(Ordering::Relaxed);
        assert!(refused.is_empty() || expected || std::thread::panicking(), "refused: {refused:#?}");
    }
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The response with this number of prompt tokens in its usage.
fn counted(bytes: &Bytes, tokens: usize) -> Bytes {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for name in ["prompt_tokens", "input_tokens", "promptTokenCount"] {
        text = text.replace(&format!("\"{name}\":11"), &format!("\"{name}\":{tokens}"));
    }
    for name in ["total_tokens", "totalTokenCount"] {
        text = text.replace(&format!("\"{name}\":18"), &format!("\"{name}\":{}", tokens + 7));
    }
    text.into()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| respond(request, Arc::clone(&shared)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
    }
}

async fn respond(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let received = Received {
        path: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        json: serde_json::from_slice(&body).unwrap_or_default(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let planned = || {
        shared.requests.lock().unwrap().push(received.clone());
        shared.asked.send_modify(|asked| *asked += 1);
        let refused = shared.refusal(&received);
        let refused = refused.or_else(|| shared.refused_for_its_words(&received));
        refused.unwrap_or_else(|| shared.planned())
    };
    let list = shared.list(&head);
    let Reply { status, headers, hold, moves } = list.unwrap_or_else(planned);
    let moves = shared.moves(moves, &received);
    let playing = Playing { shared, moves, over: false };
    if let Some(signal) = hold {
        playing.wait_for(&signal).await;
    }
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let frames = stream::unfold(playing, |mut playing| async move { Some((playing.next().await?, playing)) });
    let body = if status == 204 {
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    } else {
        StreamBody::new(frames).boxed_unsync()
    };
    Ok(response.body(body).unwrap())
}

impl Shared {
    /// The response to a request for a list; every `GET` is one.
    fn list(&self, head: &hyper::http::request::Parts) -> Option<Reply> {
        let mut lists = self.lists.lock().unwrap();
        match lists.get_mut(&head.uri.to_string()) {
            Some((reply, times)) => {
                *times += 1;
                Some(reply.clone())
            }
            None if head.method == hyper::Method::GET => Some(Reply::error(404, "not_found", "there is no such list")),
            None => None,
        }
    }

    /// The error if the API of the path refuses the request. Returns `None` if it accepts the request.
    fn refusal(&self, received: &Received) -> Option<Reply> {
        let api = Api::of(&received.path)?;
        let issued = self.issued.lock().unwrap();
        let strict = || {
            let strict = self.strict.load(Ordering::Relaxed);
            strict::refusal(&received.json["messages"]).filter(|_| strict)
        };
        let service = self.service.lock().unwrap();
        let why = api.refusal(&service, &received.path, &received.json, &issued);
        let why = why.map(|why| why.to_string()).or_else(strict)?;
        let refused = format!("{why}: {}", received.body);
        self.refused.lock().unwrap().push(refused);
        Some(Reply::json(400, &api.error(&why)))
    }

    fn refused_for_its_words(&self, received: &Received) -> Option<Reply> {
        let refuses = self.refuses.lock().unwrap();
        let (words, reply) = refuses.as_ref()?;
        received.body.contains(words).then(|| reply.clone())
    }

    fn planned(&self) -> Reply {
        let unplanned = || Reply::error(400, "unplanned", "the test planned no answer to this request");
        let planned = self.replies.lock().unwrap().pop_front();
        planned.unwrap_or_else(unplanned)
    }

    /// The moves of a response to that request. The text that they send is added to `issued`.
    fn moves(&self, moves: Vec<Move>, received: &Received) -> VecDeque<Move> {
        let mut issued = self.issued.lock().unwrap();
        let counts = self.counts.load(Ordering::Relaxed);
        let moves = moves.into_iter().map(|next| match next.to(received) {
            Move::Send(bytes) if counts => Move::Send(counted(&bytes, received.body.len() / 4)),
            other => other,
        });
        moves
            .inspect(|next| {
                if let Move::Send(bytes) = next {
                    issued.push_str(&String::from_utf8_lossy(bytes));
                }
            })
            .collect()
    }
}

/// A response that is being sent.
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
                Some(Move::Write(_)) => unreachable!("written when the request came"),
                Some(Move::Hold(signal)) => self.wait_for(&signal).await,
                Some(Move::Cut) => {
                    self.over = true;
                    // Let the sent data go out before the connection breaks.
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
        released.wait_for(|released| released.contains(signal)).await.unwrap();
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        if !self.over {
            self.shared.aborted.send_modify(|aborted| *aborted += 1);
        }
    }
}
