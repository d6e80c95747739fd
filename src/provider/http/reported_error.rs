//! Reads the error that a service reports, in any structure of the body.
//!
//! Every field may be missing or of another type than documented, so the body is parsed as a JSON
//! value rather than a struct.

use std::time::Duration;

use serde_json::Value;

use super::lenient;

#[cfg(test)]
mod tests;

/// Limit on the characters of a message.
const MAX_MESSAGE_CHARS: usize = 500;

/// An error as a service reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedError {
    /// The human-readable message. Empty if there is none.
    pub message: String,
    /// Every value that is used like a code: code, type, status and reason.
    pub codes: Vec<String>,
    /// A status within the body, as OpenRouter reports it in a stream.
    pub status: Option<u16>,
    /// How long to wait before a retry, if the body specifies it.
    pub retry_after: Option<Duration>,
    /// The error reports more tokens in the prompt than fit in the context window.
    pub counts_too_many: bool,
    /// The input was blocked by a content filter.
    pub flagged: bool,
    /// The quota for the day is exhausted.
    pub quota_exhausted: bool,
    /// The body was empty.
    pub empty: bool,
}

impl ReportedError {
    /// Reads the body of a response.
    pub fn of_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        if text.is_empty() {
            return Self { empty: true, ..Self::default() };
        }
        match lenient::value(text) {
            Some(json) => Self::of_json(&json),
            None if text.starts_with('<') => Self { message: page(text), ..Self::default() },
            None => Self { message: cut(text), ..Self::default() },
        }
    }

    /// Reads an error in JSON: the error object itself, or an object that contains it.
    pub fn of_json(json: &Value) -> Self {
        let outer = first(json);
        let inner = ["error", "detail"].iter().find_map(|key| outer.get(key));
        let inner = inner.filter(|inner| !inner.is_null()).map(first);
        let mut said = Self::default();
        match inner {
            Some(Value::String(message)) => said.message = cut(message),
            Some(inner) => said.read(inner),
            None => {}
        }
        if said.message.is_empty() || said.codes.is_empty() {
            said.read(outer);
        }
        said
    }

    /// The code to report: the first that is not a number, otherwise the first.
    pub fn code(&self) -> String {
        let word = self.codes.iter().find(|code| code.parse::<u16>().is_err());
        word.or(self.codes.first()).cloned().unwrap_or_default()
    }

    /// Whether the error has this code.
    pub fn has_code(&self, code: &str) -> bool {
        self.codes.iter().any(|said| said == code)
    }

    /// Reads the fields of an object that are not set yet.
    fn read(&mut self, object: &Value) {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        if self.message.is_empty() {
            let words = ["message", "msg", "error", "detail"].map(text);
            let words = words.into_iter().find(|words| !words.is_empty());
            self.message = cut(words.unwrap_or_default());
        }
        for key in ["code", "type", "error_type", "status"] {
            match object.get(key) {
                Some(Value::String(code)) if key != "type" || code != "error" => self.add_code(code),
                Some(Value::Number(code)) => {
                    self.add_code(&code.to_string());
                    self.status = self.status.or_else(|| status(code.as_u64()?));
                }
                _ => {}
            }
        }
        for key in ["status_code", "raw_status_code"] {
            self.status = self.status.or_else(|| status(object.get(key)?.as_u64()?));
        }
        // The place in the conversation, which the message does not always contain.
        let place = text("param");
        if place.contains('[') && !self.message.contains(place) {
            self.message = cut(&format!("{} ({place})", self.message));
        }
        let number = |key: &str| object.get(key).and_then(Value::as_u64);
        let resets = number("resets_in_seconds").map(Duration::from_secs);
        self.retry_after = self.retry_after.or(resets);
        self.counts_too_many |=
            matches!((number("n_prompt_tokens"), number("n_ctx")), (Some(n), Some(room)) if n > room);
        for detail in object["details"].as_array().into_iter().flatten() {
            self.add_code(detail["reason"].as_str().unwrap_or_default());
            let delay = detail["retryDelay"].as_str().and_then(seconds_with_unit);
            self.retry_after = self.retry_after.or(delay);
            let violations = detail["violations"].as_array();
            self.quota_exhausted |= violations.into_iter().flatten().any(|violation| {
                let quota = violation["quotaId"].as_str();
                quota.is_some_and(|quota| quota.contains("PerDay"))
            });
        }
        if let Some(metadata) = object.get("metadata") {
            self.read_metadata(metadata);
        }
    }

    /// Reads OpenRouter's metadata: the upstream service's error, and OpenRouter's own.
    fn read_metadata(&mut self, metadata: &Value) {
        self.add_code(metadata["error_type"].as_str().unwrap_or_default());
        let asked = metadata["retry_after_seconds"].as_f64();
        let asked = asked.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self.retry_after = self.retry_after.or(asked);
        self.flagged |= ["flagged_input", "reasons"].iter().any(|it| metadata.get(it).is_some());
        let upstream = match metadata.get("raw") {
            Some(Value::String(raw)) if !raw.is_empty() => Some(Self::of_body(raw.as_bytes())),
            Some(raw @ (Value::Object(_) | Value::Array(_))) => Some(Self::of_json(raw)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
        };
        if let Some(upstream) = upstream {
            let words = if upstream.message.is_empty() {
                metadata["raw"].as_str().unwrap_or_default()
            } else {
                &upstream.message
            };
            if !words.is_empty() {
                self.message = cut(&format!("{}: {words}", self.message));
            }
            self.counts_too_many |= upstream.counts_too_many;
            upstream.codes.iter().for_each(|code| self.add_code(code));
        }
    }

    fn add_code(&mut self, code: &str) {
        if !code.is_empty() && !self.has_code(code) {
            self.codes.push(code.chars().take(MAX_CODE_CHARS).collect());
        }
    }
}

/// Limit on the characters of a code.
const MAX_CODE_CHARS: usize = 100;

/// The first element of a list, or the value itself.
fn first(value: &Value) -> &Value {
    let list = value.as_array();
    list.and_then(|list| list.first()).unwrap_or(value)
}

/// Returns the number if it is an error status.
fn status(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// Parses a duration such as `34.4s`.
fn seconds_with_unit(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

/// Describes an HTML page by its title. Proxies in front of the service return such pages.
fn page(html: &str) -> String {
    let lower = html.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + "<title>".len());
    let title = title.and_then(|from| Some(html[from..from + lower[from..].find("</title>")?].trim()));
    match title.filter(|title| !title.is_empty()) {
        Some(title) => cut(&format!("an HTML page titled {title}")),
        None => "an HTML page".to_owned(),
    }
}

/// Joins the text into one line and truncates it to [`MAX_MESSAGE_CHARS`].
fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
