//! Responses of Anthropic's Messages API, block by block. Thinking blocks are signed; the signature is bound to the
//! request.

use serde_json::{Value, json};

use super::{Reply, halves};
use crate::harness::validate::anthropic::signature;

/// Builder of a response.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    blocks: Vec<Block>,
    stop: Option<String>,
    usage: Option<Value>,
}

#[derive(Debug, Clone)]
enum Block {
    Text(Vec<String>),
    Thinking(String),
    Redacted,
    Call(Value),
    Whole(Value),
}

/// A response with one text, a delta for each of `words`.
pub fn said(words: &[&str]) -> Reply {
    Answer::default().said(words).reply()
}

/// One event, named by its type.
pub fn event(payload: &Value) -> Vec<u8> {
    let kind = payload["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {payload}\n\n").into_bytes()
}

/// An error event in the stream.
pub fn error(kind: &str, message: &str) -> Vec<u8> {
    event(&json!({"type": "error", "error": {"type": kind, "message": message}}))
}

/// An error response.
pub fn refused(status: u16, kind: &str, message: &str) -> Reply {
    let error = json!({"type": kind, "message": message});
    let body = json!({"type": "error", "error": error, "request_id": "req_1"});
    Reply::json(status, &body).header("request-id", "req_1")
}

impl Answer {
    /// Adds a text, a delta for each of `words`.
    #[must_use]
    pub fn said(self, words: &[&str]) -> Self {
        self.with(Block::Text(words.iter().map(|&word| word.to_owned()).collect()))
    }

    /// Adds signed thinking, whose text may be empty.
    #[must_use]
    pub fn thinking(self, words: &str) -> Self {
        self.with(Block::Thinking(words.to_owned()))
    }

    /// Adds redacted thinking.
    #[must_use]
    pub fn redacted(self) -> Self {
        self.with(Block::Redacted)
    }

    /// Adds a tool call.
    #[must_use]
    pub fn call(self, id: &str, name: &str, input: &Value) -> Self {
        self.with(Block::Call(json!({"type": "tool_use", "id": id, "name": name, "input": input})))
    }

    /// Adds a block that is sent whole, such as a call of a hosted tool.
    #[must_use]
    pub fn block(self, block: Value) -> Self {
        self.with(Block::Whole(block))
    }

    /// The service pauses during a search that it runs itself.
    #[must_use]
    pub fn paused(self) -> Self {
        let search = json!({
            "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
            "input": {"query": "crimson"},
        });
        self.block(search).stopped("pause_turn")
    }

    /// Sets the stop reason, if it is neither `tool_use` nor `end_turn`.
    #[must_use]
    pub fn stopped(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Sets the reported usage.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The complete response.
    pub fn reply(self) -> Reply {
        Reply::to(move |request| [self.beginning(&request.json), self.ending()].concat())
    }

    /// The response without its end; the test sends the rest.
    pub fn begun(self) -> Reply {
        Reply::to(move |request| self.beginning(&request.json))
    }

    fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    fn beginning(&self, request: &Value) -> Vec<u8> {
        let usage = json!({
            "input_tokens": 11, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 1,
        });
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": request["model"],
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        let mut body = event(&json!({"type": "message_start", "message": message}));
        body.extend(event(&json!({"type": "ping"})));
        let mut written: Vec<Value> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let whole = block.whole(request, &written);
            let start = block.start(&whole);
            body.extend(event(&json!({"type": "content_block_start", "index": index, "content_block": start})));
            for delta in block.deltas(&whole) {
                body.extend(event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
            }
            body.extend(event(&json!({"type": "content_block_stop", "index": index})));
            written.push(whole);
        }
        body
    }

    fn ending(&self) -> Vec<u8> {
        let is_call = |block: &Block| matches!(block, Block::Call(_));
        let usual = if self.blocks.iter().any(is_call) { "tool_use" } else { "end_turn" };
        let reason = self.stop.as_deref().unwrap_or(usual);
        let usage = self.usage.clone();
        let usage = usage.unwrap_or_else(|| json!({"input_tokens": 11, "output_tokens": 7}));
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        let mut body = event(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
        body.extend(event(&json!({"type": "message_stop"})));
        body
    }
}

impl Block {
    /// The block as the next request sends it back to the service.
    fn whole(&self, request: &Value, written: &[Value]) -> Value {
        match self {
            Self::Text(words) => json!({"type": "text", "text": words.concat()}),
            Self::Thinking(words) => json!({
                "type": "thinking", "thinking": words,
                "signature": signature(request, written, words),
            }),
            Self::Redacted => json!({
                "type": "redacted_thinking", "data": signature(request, written, ""),
            }),
            Self::Call(block) | Self::Whole(block) => block.clone(),
        }
    }

    fn start(&self, whole: &Value) -> Value {
        let mut start = whole.clone();
        match self {
            Self::Text(_) => start["text"] = json!(""),
            Self::Thinking(_) => {
                start["thinking"] = json!("");
                start["signature"] = json!("");
            }
            Self::Call(_) => start["input"] = json!({}),
            Self::Redacted | Self::Whole(_) => {}
        }
        start
    }

    fn deltas(&self, whole: &Value) -> Vec<Value> {
        match self {
            Self::Text(words) => words.iter().map(|word| json!({"type": "text_delta", "text": word})).collect(),
            Self::Thinking(words) => {
                let shown = json!({"type": "thinking_delta", "thinking": words});
                let signed = json!({"type": "signature_delta", "signature": whole["signature"]});
                let shown = Some(shown).filter(|_| !words.is_empty());
                shown.into_iter().chain([signed]).collect()
            }
            Self::Call(_) => halves(&whole["input"].to_string())
                .map(|json| json!({"type": "input_json_delta", "partial_json": json}))
                .to_vec(),
            Self::Redacted | Self::Whole(_) => Vec::new(),
        }
    }
}
