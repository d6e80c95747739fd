//! Answers of Gemini's generateContent, part by part.

use serde_json::{Value, json};

use super::{Received, Reply, reply::mark};
use crate::harness::validate::gemini::model_of;

/// An answer that is being put together.
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

/// An answer that says these words.
pub fn said(words: &[&str]) -> Reply {
    Answer::default().said(words).reply()
}

/// One event; its lines end as Google's do.
pub fn event(payload: &Value) -> Vec<u8> {
    format!("data: {payload}\r\n\r\n").into_bytes()
}

/// An error in the stream of an answer.
pub fn error(code: u16, status: &str, message: &str) -> Vec<u8> {
    event(&json!({"error": {"code": code, "message": message, "status": status}}))
}

/// An error in place of an answer.
pub fn refused(code: u16, status: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": code, "message": message, "status": status}});
    Reply::json(code, &body)
}

/// The prompt is blocked: there is no answer.
pub fn blocked(reason: &str) -> Reply {
    let usage = json!({"promptTokenCount": 11, "totalTokenCount": 11});
    Reply::events(event(
        &json!({"promptFeedback": {"blockReason": reason}, "usageMetadata": usage}),
    ))
}

impl Answer {
    /// Texts, each in an event of its own.
    #[must_use]
    pub fn said(mut self, words: &[&str]) -> Self {
        self.parts
            .extend(words.iter().map(|word| json!({"text": word})));
        self
    }

    /// A thought that is shown.
    #[must_use]
    pub fn thinking(self, words: &str) -> Self {
        self.part(json!({"text": words, "thought": true}))
    }

    /// A call of a tool, without an id.
    #[must_use]
    pub fn call(self, name: &str, args: &Value) -> Self {
        self.part(json!({"functionCall": {"name": name, "args": args}}))
    }

    /// Another part.
    #[must_use]
    pub fn part(mut self, part: Value) -> Self {
        self.parts.push(part);
        self
    }

    /// The last part so far is signed.
    #[must_use]
    pub fn signed(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part["thoughtSignature"] = json!("");
        }
        self
    }

    /// Why it stops, if not at its end.
    #[must_use]
    pub fn finished(mut self, reason: &str) -> Self {
        self.finish = reason.to_owned();
        self
    }

    /// The usage that it reports.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = usage;
        self
    }

    /// As it is sent.
    pub fn reply(self) -> Reply {
        Reply::to(move |request| [self.beginning(request), self.ending(request)].concat())
    }

    /// As it is sent so far: what follows is up to the test.
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
                    // Base64, as all bytes are.
                    part["thoughtSignature"] = json!(format!("{unique}{at:04}"));
                }
                let content = json!({"role": "model", "parts": [part]});
                self.chunk(request, &json!({"content": content, "index": 0}))
            })
            .collect()
    }

    fn ending(&self, request: &Received) -> Vec<u8> {
        let content = json!({"role": "model"});
        self.chunk(
            request,
            &json!({"content": content, "finishReason": self.finish, "index": 0}),
        )
    }

    fn chunk(&self, request: &Received, candidate: &Value) -> Vec<u8> {
        event(&json!({
            "candidates": [candidate], "usageMetadata": self.usage,
            "modelVersion": model_of(&request.path), "responseId": "response-1",
        }))
    }
}
