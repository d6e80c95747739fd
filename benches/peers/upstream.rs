//! A model service that responds immediately: Chat Completions and Responses, streamed, always with the same response.

use std::{convert::Infallible, fmt::Write as _, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

/// Tokens of a response, each in a separate event.
const TOKENS: usize = 50;

/// The prepared responses.
struct Answers {
    chat: Bytes,
    responses: Bytes,
    models: Bytes,
}

/// Starts the service.
pub(crate) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Arc::new(Answers {
        chat: chat().into(),
        responses: responses().into(),
        models: json!({"object": "list", "data": [{"id": "bench", "object": "model"}]}).to_string().into(),
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = Arc::clone(&answers);
            let service = service_fn(move |request| answer(Arc::clone(&answers), request));
            stream.set_nodelay(true).unwrap();
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn answer(answers: Arc<Answers>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (kind, body) = match request.uri().path() {
        "/v1/chat/completions" => ("text/event-stream", &answers.chat),
        "/v1/responses" => ("text/event-stream", &answers.responses),
        _ => ("application/json", &answers.models),
    };
    let _ = request.into_body().collect().await; // the response is sent even if the caller has disconnected
    let answer = Response::builder().header("content-type", kind);
    Ok(answer.body(Full::new(body.clone())).unwrap())
}

fn chat() -> String {
    let mut body = String::new();
    let mut chunk = |delta: serde_json::Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "bench", "choices": [choice]});
        let _ = write!(body, "data: {chunk}\n\n"); // writing to a string cannot fail
    };
    chunk(json!({"role": "assistant", "content": ""}), None);
    for n in 0..TOKENS {
        chunk(json!({"content": format!(" {n}")}), None);
    }
    chunk(json!({}), Some("stop"));
    let usage = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench",
        "choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": TOKENS, "total_tokens": 8 + TOKENS}});
    body + &format!("data: {usage}\n\ndata: [DONE]\n\n")
}

fn responses() -> String {
    let mut body = String::new();
    let mut number = 0;
    let mut event = |kind: &str, mut fields: serde_json::Value| {
        fields["type"] = kind.into();
        fields["sequence_number"] = number.into();
        number += 1;
        let _ = write!(body, "event: {kind}\ndata: {fields}\n\n"); // writing to a string cannot fail
    };
    let response = |status: &str, output: serde_json::Value| {
        json!({"response": {"id": "resp_1", "object": "response", "created_at": 1, "model": "bench",
            "status": status, "output": output, "parallel_tool_calls": true, "tools": [],
            "usage": {"input_tokens": 8, "output_tokens": TOKENS, "total_tokens": 8 + TOKENS,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}})
    };
    let text: String = (0..TOKENS).map(|n| format!(" {n}")).collect();
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [part]});
    let place = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
    let with = |name: &str, value: serde_json::Value| {
        let mut fields = place.clone();
        fields[name] = value;
        fields
    };
    event("response.created", response("in_progress", json!([])));
    event(
        "response.output_item.added",
        json!({"output_index": 0, "item": {"id": "msg_1", "type": "message", "role": "assistant",
            "status": "in_progress", "content": []}}),
    );
    let empty = json!({"type": "output_text", "text": "", "annotations": []});
    event("response.content_part.added", with("part", empty));
    for n in 0..TOKENS {
        event("response.output_text.delta", with("delta", format!(" {n}").into()));
    }
    event("response.output_text.done", with("text", text.into()));
    event("response.content_part.done", with("part", part));
    event("response.output_item.done", json!({"output_index": 0, "item": item}));
    event("response.completed", response("completed", json!([item])));
    body
}
