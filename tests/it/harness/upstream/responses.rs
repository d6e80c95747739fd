//! Responses of OpenAI's Responses API, item by item.

use serde_json::{Value, json};

use super::{Received, Reply, halves, reply::mark};

/// Builder of a response.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    items: Vec<Item>,
    incomplete: Option<String>,
    usage: Option<Value>,
}

#[derive(Debug, Clone)]
enum Item {
    Reasoning(String),
    Said(Vec<String>),
    Call(Value),
    Whole(Value),
}

/// A response with one message, a delta for each of `words`.
pub fn said(words: &[&str]) -> Reply {
    Answer::default().said(words).reply()
}

/// An error event in the stream.
pub fn error(code: &str, message: &str) -> Vec<u8> {
    let error = json!({"type": code, "code": code, "message": message, "param": null});
    event(0, json!({"type": "error", "error": error}))
}

/// The end of a failed response.
pub fn failed(code: &str, message: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": message});
    let response = json!({"id": "resp_1", "status": "failed", "error": error, "usage": null});
    event(0, json!({"type": "response.failed", "response": response}))
}

/// One event, named by its type.
pub fn event(number: usize, mut payload: Value) -> Vec<u8> {
    payload["sequence_number"] = json!(number);
    let kind = payload["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {payload}\n\n").into_bytes()
}

impl Answer {
    /// Adds reasoning: its summary, and the rest encrypted.
    #[must_use]
    pub fn reasoning(self, summary: &str) -> Self {
        self.with(Item::Reasoning(summary.to_owned()))
    }

    /// Adds a message, a delta for each of `words`.
    #[must_use]
    pub fn said(self, words: &[&str]) -> Self {
        self.with(Item::Said(words.iter().map(|&word| word.to_owned()).collect()))
    }

    /// Adds a tool call.
    #[must_use]
    pub fn call(self, call_id: &str, name: &str, arguments: &Value) -> Self {
        self.with(Item::Call(json!({
            "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
            "arguments": arguments.to_string(),
        })))
    }

    /// Adds an item that is sent whole, such as a call of a hosted tool.
    #[must_use]
    pub fn item(self, item: Value) -> Self {
        self.with(Item::Whole(item))
    }

    /// Makes the response incomplete, for this reason.
    #[must_use]
    pub fn incomplete(mut self, reason: &str) -> Self {
        self.incomplete = Some(reason.to_owned());
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
        Reply::to(move |request| {
            let mut events = self.beginning(request);
            events.push(self.ending(request));
            numbered(events)
        })
    }

    /// The response without its end; the test sends the rest.
    pub fn begun(self) -> Reply {
        Reply::to(move |request| numbered(self.beginning(request)))
    }

    fn with(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    /// The items as the next request sends them back to the service.
    fn items(&self, request: &Received) -> Vec<Value> {
        let unique = &mark(request)[..12];
        let whole = |(at, item): (usize, &Item)| item.whole(&format!("{unique}{at}"));
        self.items.iter().enumerate().map(whole).collect()
    }

    fn response(request: &Received, status: &str) -> Value {
        json!({
            "id": format!("resp_{}", &mark(request)[..12]), "object": "response",
            "status": status, "model": request.json["model"], "output": [], "usage": null,
            "error": null, "incomplete_details": null,
        })
    }

    fn beginning(&self, request: &Received) -> Vec<Value> {
        let response = Self::response(request, "in_progress");
        let mut events = vec![
            json!({"type": "response.created", "response": response}),
            json!({"type": "response.in_progress", "response": response}),
        ];
        for (at, (item, whole)) in self.items.iter().zip(self.items(request)).enumerate() {
            let between = item.deltas(&whole).into_iter().map(|mut event| {
                event["output_index"] = json!(at);
                event["item_id"] = whole["id"].clone();
                event
            });
            let added = begun(&whole);
            events.push(json!({"type": "response.output_item.added", "output_index": at, "item": added}));
            events.extend(between);
            events.push(json!({"type": "response.output_item.done", "output_index": at, "item": whole}));
        }
        events
    }

    fn ending(&self, request: &Received) -> Value {
        let status = match self.incomplete {
            Some(_) => "incomplete",
            None => "completed",
        };
        let mut response = Self::response(request, status);
        response["output"] = json!(self.items(request));
        if let Some(reason) = &self.incomplete {
            response["incomplete_details"] = json!({"reason": reason});
        }
        response["usage"] = self.usage.clone().unwrap_or_else(|| {
            json!({
                "input_tokens": 11, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 18,
            })
        });
        json!({"type": format!("response.{status}"), "response": response})
    }
}

/// The start of an item.
fn begun(whole: &Value) -> Value {
    let mut begun = whole.clone();
    begun["status"] = json!("in_progress");
    for field in ["content", "summary"] {
        if begun[field].is_array() {
            begun[field] = json!([]);
        }
    }
    if begun["arguments"].is_string() {
        begun["arguments"] = json!("");
    }
    begun
}

fn numbered(events: Vec<Value>) -> Vec<u8> {
    let events = events.into_iter().enumerate();
    events.flat_map(|(number, payload)| event(number, payload)).collect()
}

impl Item {
    fn whole(&self, unique: &str) -> Value {
        match self {
            Self::Reasoning(summary) => json!({
                "type": "reasoning", "id": format!("rs_{unique}"),
                "summary": [{"type": "summary_text", "text": summary}],
                "encrypted_content": format!("encrypted{unique}"),
            }),
            Self::Said(words) => json!({
                "type": "message", "id": format!("msg_{unique}"), "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": words.concat(), "annotations": []}],
            }),
            Self::Call(call) => {
                let mut call = call.clone();
                call["id"] = json!(format!("fc_{unique}"));
                call
            }
            Self::Whole(item) => item.clone(),
        }
    }

    /// The events between the start and the end of an item.
    fn deltas(&self, whole: &Value) -> Vec<Value> {
        let kind = |kind: &str| format!("response.{kind}");
        match self {
            Self::Reasoning(summary) => {
                let kind = |end: &str| kind(&format!("reasoning_summary_{end}"));
                let empty = json!({"type": "summary_text", "text": ""});
                let part = &whole["summary"][0];
                vec![
                    json!({"type": kind("part.added"), "summary_index": 0, "part": empty}),
                    json!({"type": kind("text.delta"), "summary_index": 0, "delta": summary}),
                    json!({"type": kind("text.done"), "summary_index": 0, "text": summary}),
                    json!({"type": kind("part.done"), "summary_index": 0, "part": part}),
                ]
            }
            Self::Said(words) => {
                let empty = json!({"type": "output_text", "text": "", "annotations": []});
                let part = &whole["content"][0];
                let delta = kind("output_text.delta");
                let said = words.iter().map(|word| json!({"type": delta, "content_index": 0, "delta": word}));
                let mut events = vec![json!({"type": kind("content_part.added"), "content_index": 0, "part": empty})];
                events.extend(said);
                events.extend([
                    json!({"type": kind("output_text.done"), "content_index": 0, "text": words.concat()}),
                    json!({"type": kind("content_part.done"), "content_index": 0, "part": part}),
                ]);
                events
            }
            Self::Call(call) => {
                let kind = |end: &str| kind(&format!("function_call_arguments.{end}"));
                let written = call["arguments"].as_str().unwrap_or_default();
                let [first, rest] = halves(written);
                vec![
                    json!({"type": kind("delta"), "delta": first}),
                    json!({"type": kind("delta"), "delta": rest}),
                    json!({"type": kind("done"), "arguments": written}),
                ]
            }
            Self::Whole(_) => Vec::new(),
        }
    }
}
