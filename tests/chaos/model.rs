//! A model service over HTTP that responds as the prompt requests, fails sometimes, and validates every request as
//! strictly as the strictest real provider.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{Request, Response, body::Frame, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::broadcast};

use crate::{harness::upstream::event, random::Random};

/// The dialects that differ most in what they accept.
pub(crate) const DIALECTS: [&str; 4] = ["openai", "mistral", "deepseek", "compatible"];

/// The model that writes summaries, in each dialect.
pub(crate) const SUMMARISER: &str = "summary";

/// A prompt of this many messages is never rejected as too long: almost nothing in it can be removed.
const SHORT: usize = 5;

/// Bytes of a request that count as a token.
const BYTES_PER_TOKEN: usize = 4;

/// The progress of a response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The replica that sent the request.
    pub(crate) replica: usize,
    /// A text that no other response contains.
    pub(crate) mark: String,
    /// The response was sent completely; its replica now commits it.
    pub(crate) whole: bool,
    /// The response calls no tool: its commit ends the turn.
    pub(crate) last: bool,
    /// The response is a summary: its commit applies the compaction.
    pub(crate) summary: bool,
}

/// The service. It stops at the end of the run.
pub(crate) struct Service {
    /// The address on which it listens.
    pub(crate) address: SocketAddr,
    /// Receives the progress of every response.
    pub(crate) answers: broadcast::Sender<Answer>,
    shared: Arc<Shared>,
}

struct Shared {
    random: Mutex<Random>,
    calls: AtomicUsize,
    faulty: std::sync::atomic::AtomicBool,
    violations: Mutex<Vec<String>>,
    answered: broadcast::Sender<Answer>,
}

impl Service {
    /// Starts the service on a free port.
    pub(crate) async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answered = broadcast::Sender::new(64);
        let shared = Arc::new(Shared {
            random: Mutex::new(Random::new(seed, 1_000_000)),
            calls: AtomicUsize::new(0),
            faulty: true.into(),
            violations: Mutex::default(),
            answered: answered.clone(),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                let service = service_fn(move |request| respond(request, Arc::clone(&shared)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        Self { address, answers: answered, shared }
    }

    /// Stops injecting failures.
    pub(crate) fn is_well(&self) {
        self.shared.faulty.store(false, Ordering::Relaxed);
    }

    /// The number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// The violations found in requests.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.shared.violations.lock().unwrap().clone()
    }
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A piece of a response.
enum Piece {
    Bytes(Vec<u8>),
    Wait(Duration),
    Told(bool),
    Cut,
}

async fn respond(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let mut path = head.uri.path().split('/').skip(1);
    let replica: usize = path.next().and_then(|number| number.parse().ok()).unwrap_or_default();
    let dialect = path.next().unwrap_or_default().to_owned();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return Ok(status(400)); // the client disconnected during the request
    };
    let number = shared.calls.fetch_add(1, Ordering::Relaxed);
    let messages = asked["messages"].as_array().cloned().unwrap_or_default();
    let flaws = flaws(&messages, &dialect);
    if !flaws.is_empty() {
        shared.violations.lock().unwrap().push(format!("{dialect} would refuse: {}: {messages:?}", flaws.join("; ")));
        return Ok(status(400));
    }
    let summary = asked["model"] == SUMMARISER;
    let mark = format!("mark-{number}.");
    let last = summary || tools_wished(&messages) == 0;
    let tokens = body.len() / BYTES_PER_TOKEN;
    let pieces = {
        let mut random = shared.random.lock().unwrap();
        let faulty = shared.faulty.load(Ordering::Relaxed);
        if faulty && random.happens(3) {
            return Ok(status(500));
        }
        if faulty && messages.len() > SHORT && random.happens(8) {
            return Ok(too_long());
        }
        let cut = faulty && random.happens(3);
        let random = faulty.then_some(&mut *random);
        if summary { self::summary(&mark, tokens, cut, random) } else { answer(&messages, &mark, tokens, cut) }
    };
    let playing = Playing { pieces: pieces.into_iter(), shared, replica, mark, last, summary };
    let frames = stream::unfold(playing, |mut playing| async move { Some((playing.next().await?, playing)) });
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response.body(StreamBody::new(frames).boxed_unsync()).unwrap())
}

/// A response that is being sent.
struct Playing {
    pieces: std::vec::IntoIter<Piece>,
    shared: Arc<Shared>,
    replica: usize,
    mark: String,
    last: bool,
    summary: bool,
}

impl Playing {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, io::Error>> {
        loop {
            match self.pieces.next()? {
                Piece::Bytes(bytes) => return Some(Ok(Frame::data(Bytes::from(bytes)))),
                Piece::Wait(pause) => tokio::time::sleep(pause).await,
                Piece::Told(whole) => {
                    let Self { replica, last, summary, .. } = *self;
                    let answer = Answer { replica, mark: self.mark.clone(), whole, last, summary };
                    drop(self.shared.answered.send(answer));
                }
                Piece::Cut => return Some(Err(io::Error::other("cut"))),
            }
        }
    }
}

fn status(code: u16) -> Response<Body> {
    let body = StreamBody::new(stream::empty()).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// The error for a prompt that does not fit the context window.
fn too_long() -> Response<Body> {
    let error = json!({ "error": { "message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded" } });
    let frame = Ok(Frame::data(Bytes::from(error.to_string())));
    let body = StreamBody::new(stream::iter([frame])).boxed_unsync();
    Response::builder().status(400).header("content-type", "application/json").body(body).unwrap()
}

/// The number that the last user message requests for `key`; 0 if it requests none.
fn wished(messages: &[Value], key: &str) -> usize {
    let asked = messages.iter().rfind(|message| message["role"] == "user").map(text).unwrap_or_default();
    let value = asked.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// The number of tools to call now; 0 after tool results.
fn tools_wished(messages: &[Value]) -> usize {
    let answered = messages.last().is_some_and(|message| message["role"] == "tool");
    if answered { 0 } else { wished(messages, "tools") }
}

/// The response that the last user message requests: text, then tool calls unless it follows tool results.
fn answer(messages: &[Value], mark: &str, tokens: usize, cut: bool) -> Vec<Piece> {
    let tools = tools_wished(messages);
    let mut pieces = spoken(wished(messages, "words").max(1), wished(messages, "pace"), 1, cut);
    if cut {
        return pieces;
    }
    pieces.push(Piece::Bytes(event(&json!({ "content": mark }))));
    for (index, name) in ["left", "right"].into_iter().take(tools).enumerate() {
        let function = json!({ "name": name, "arguments": "{\"deep\": [1, 2]}" });
        let call = json!({ "index": index, "id": format!("call_{}{index}", mark.trim_end_matches('.')), "type": "function", "function": function });
        pieces.push(Piece::Bytes(event(&json!({ "tool_calls": [call] }))));
    }
    pieces.push(Piece::Bytes(finished(if tools > 0 { "tool_calls" } else { "stop" }, tokens)));
    pieces.push(Piece::Told(true));
    pieces
}

/// A summary. With `random` it is sometimes truncated or empty.
fn summary(mark: &str, tokens: usize, cut: bool, mut random: Option<&mut Random>) -> Vec<Piece> {
    let mut chance = |percent| random.as_mut().is_some_and(|random| random.happens(percent));
    let empty = chance(5);
    let short = chance(5);
    let mut pieces = if empty { Vec::new() } else { spoken(12, 15, 6, cut) };
    if cut {
        return pieces;
    }
    if !empty {
        pieces.push(Piece::Bytes(event(&json!({ "content": mark }))));
    }
    pieces.push(Piece::Bytes(finished(if short { "length" } else { "stop" }, tokens)));
    pieces.push(Piece::Told(true));
    pieces
}

/// `words` words with pauses of `pace` milliseconds. Progress is reported every `told` words. With `cut`, the
/// connection breaks in the middle.
fn spoken(words: usize, pace: usize, told: usize, cut: bool) -> Vec<Piece> {
    let pause = Duration::from_millis(u64::try_from(pace).unwrap_or_default());
    let mut pieces = Vec::new();
    for n in 0..words {
        if cut && n == words / 2 {
            pieces.push(Piece::Cut);
            return pieces;
        }
        pieces.push(Piece::Bytes(event(&json!({ "content": format!("word-{n} ") }))));
        pieces.push(Piece::Wait(pause));
        if n > 0 && n % told == 0 {
            pieces.push(Piece::Told(false));
        }
    }
    pieces
}

/// The end of a response: finish reason, usage for a prompt of `tokens` tokens, and the end marker.
fn finished(reason: &str, tokens: usize) -> Vec<u8> {
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }], "usage": null });
    let spoken = 20;
    let total = tokens + 20;
    let usage = json!({ "prompt_tokens": tokens, "completion_tokens": spoken, "total_tokens": total });
    let usage = json!({ "choices": [], "usage": usage });
    format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n").into_bytes()
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The reasons why a provider would refuse these messages.
fn flaws(messages: &[Value], dialect: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut before = "";
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            flaws.push(format!("messages[{place}] precedes the results of {open:?}"));
            open.clear();
        }
        match role {
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    flaws.push(format!("messages[{place}] is a result without an open call: {id}"));
                }
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                if calls.is_empty() && text(message).is_empty() {
                    flaws.push(format!("messages[{place}] is empty"));
                }
                for call in &calls {
                    let id = call["id"].as_str().unwrap_or_default().to_owned();
                    if !right_id(&id, dialect) {
                        flaws.push(format!("messages[{place}] has a call with the id {id:?}"));
                    }
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                        flaws.push(format!("messages[{place}] has a call with the arguments {arguments:?}"));
                    }
                    if !known.insert(id.clone()) {
                        flaws.push(format!("messages[{place}] repeats the call {id}"));
                    }
                    open.insert(id);
                }
            }
            "user" if dialect == "mistral" && before == "tool" => {
                flaws.push(format!("messages[{place}] is a user message directly after a result"));
            }
            "user" if text(message).is_empty() => flaws.push(format!("messages[{place}] is empty")),
            "user" | "system" | "developer" => {}
            other => flaws.push(format!("messages[{place}] has the role {other:?}")),
        }
        before = role;
    }
    if !open.is_empty() {
        flaws.push(format!("no result for {open:?}"));
    }
    if !["user", "tool"].contains(&before) {
        flaws.push(format!("the last message has the role {before:?}"));
    }
    flaws
}

fn right_id(id: &str, dialect: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    match dialect {
        "mistral" => id.len() == 9 && id.chars().all(plain),
        _ => !id.is_empty() && id.len() <= 40 && id.chars().all(|c| plain(c) || c == '_' || c == '-'),
    }
}
