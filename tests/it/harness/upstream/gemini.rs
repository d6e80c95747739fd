//! Responses of Gemini's generateContent, part by part.

use serde_json::{Value, json};

use super::{Received, Reply, reply::mark};
use crate::harness::validate::gemini::model_of;

/// Builder of a response.
#[derive(Debug, Clone)]
pub struct Answer {
    parts: Vec<Value>,
    finish: String,
    usage: Value,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            finish: "STOP".to_owned(),
            usage: json!({
                "promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18,
            }),
        }
    }
}

/// A response with an event for each of `words`.
pub fn said(words: &[&str]) -> Reply {
    Answer::default().said(words).reply()
}

/// One event, with line ends as Google sends them.
pub fn event(payload: &Value) -> Vec<u8> {
    format!("data: {payload}\r\n\r\n").into_bytes()
}

/// An error event in the stream.
pub fn error(code: u16, status: &str, message: &str) -> Vec<u8> {
    event(&json!({"error": {"code": code, "message": message, "status": status}}))
}

/// An error response.
pub fn refused(code: u16, status: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": code, "message": message, "status": status}});
    Reply::json(code, &body)
}

/// A response without content, because the prompt is blocked.
pub fn blocked(reason: &str) -> Reply {
    let usage = json!({"promptTokenCount": 11, "totalTokenCount": 11});
    Reply::events(event(&json!({"promptFeedback": {"blockReason": reason}, "usageMetadata": usage})))
}

impl Answer {
    /// Adds texts, each in a separate event.
    #[must_use]
    pub fn said(mut self, words: &[&str]) -> Self {
        self.parts.extend(words.iter().map(|word| json!({"text": word})));
        self
    }

    /// Adds a visible thought.
    #[must_use]
    pub fn thinking(self, words: &str) -> Self {
        self.part(json!({"text": words, "thought": true}))
    }

    /// Adds a tool call without an id.
    #[must_use]
    pub fn call(self, name: &str, args: &Value) -> Self {
        self.part(json!({"functionCall": {"name": name, "args": args}}))
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: Value) -> Self {
        self.parts.push(part);
        self
    }

    /// Signs the last part so far.
    #[must_use]
    pub fn signed(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part["thoughtSignature"] = json!("");
        }
        self
    }

    /// Sets the finish reason, if it is not `STOP`.
    #[must_use]
    pub fn finished(mut self, reason: &str) -> Self {
        self.finish = reason.to_owned();
        self
    }

    /// Sets the reported usage.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = usage;
        self
    }

    /// The complete response.
    pub fn reply(self) -> Reply {
        Reply::to(move |request| [self.beginning(request), self.ending(request)].concat())
    }

    /// The response without its end; the test sends the rest.
    pub fn begun(self) -> Reply {
        Reply::to(move |request| self.beginning(request))
    }

    fn beginning(&self, request: &Received) -> Vec<u8> {
        let unique = mark(request);
        let parts = self.parts.iter().enumerate();
        parts
            .flat_map(|(at, part)| {
                let mut part = part.clone();
                if part["thoughtSignature"] == "" {
                    // Base64, as for all bytes.
                    part["thoughtSignature"] = json!(format!("{unique}{at:04}"));
                }
                let content = json!({"role": "model", "parts": [part]});
                self.chunk(request, &json!({"content": content, "index": 0}))
            })
            .collect()
    }

    fn ending(&self, request: &Received) -> Vec<u8> {
        let content = json!({"role": "model"});
        self.chunk(request, &json!({"content": content, "finishReason": self.finish, "index": 0}))
    }

    fn chunk(&self, request: &Received, candidate: &Value) -> Vec<u8> {
        event(&json!({
            "candidates": [candidate], "usageMetadata": self.usage,
            "modelVersion": model_of(&request.path), "responseId": "response-1",
        }))
    }
}
