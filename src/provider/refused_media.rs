//! Media that a service rejected by name. From the next attempt on, it is replaced by text for the
//! model that was called. The stored history does not change.
//!
//! Rejections are kept in memory only. A replica that does not know of one sends the media again
//! and learns of it from the same response.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::StreamExt as _;
use regex::Regex;
use serde_json::Value;

use super::{Error, Provider, ResponseStream, authorship, error::Kind, http::classify::IMAGE_CODES, inputs::identity};
use crate::model::{
    Media, Prompt,
    media::{Kind as MediaKind, Source},
};

#[cfg(test)]
mod tests;

/// Number of media parts to remember for one provider. The oldest is removed first.
const MAX_ENTRIES: usize = 4_096;

/// Where the content of a media part is in a request: of Anthropic, Chat Completions, the Responses
/// API and Gemini.
const CONTENTS: [&str; 10] = [
    "/source/data",
    "/source/url",
    "/image_url/url",
    "/image_url",
    "/file/file_data",
    "/input_audio/data",
    "/file_data",
    "/file_url",
    "/inlineData/data",
    "/fileData/fileUri",
];

/// Phrases of error messages for unusable media, to the left or right of the noun for the media.
const CANNOT: &str = r"(?:unsupported|invalid|corrupt\w*|not (?:a )?valid|does not represent|(?:could not|unable to|cannot|can't|failed to) (?:be )?(?:process|decode|parse|load|read|open|identify|download)\w*|error while downloading|password|no pages|too (?:large|small)|exceeds?)";

/// Nouns for each kind of media.
const MEDIA_NOUNS: [(MediaKind, &str); 4] = [
    (MediaKind::Image, r"(?:images?|pictures?)"),
    (MediaKind::Document, r"(?:pdfs?|documents?|files?)"),
    (MediaKind::Audio, r"audios?"),
    (MediaKind::Video, r"videos?"),
];

/// The media that one provider's service rejected. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusedMedia(Arc<Mutex<Rejections>>);

#[derive(Debug, Default)]
struct Rejections {
    /// The reason that the service gave.
    reasons: BTreeMap<Key, String>,
    /// Keys in order of insertion.
    order: VecDeque<Key>,
}

/// A model, and the identity of a media part: another model of the service may accept it.
type Key = (String, String);

impl RefusedMedia {
    /// Why the media is not sent to the model. Returns `None` if the service has not rejected it.
    pub(super) fn reason(&self, model: &str, media: &Media) -> Option<String> {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.reasons.is_empty() {
            return None;
        }
        refused.reasons.get(&key(model, media)).cloned()
    }

    /// Watches the response to a prompt. If the service rejects media, this is remembered, and the
    /// error is marked as retryable.
    pub(super) fn watch(
        &self,
        provider: impl Provider + 'static,
        prompt: Arc<Prompt>,
        answer: ResponseStream,
    ) -> ResponseStream {
        let mut messages = prompt.transcript.messages().iter();
        if messages.all(|message| message.media().next().is_none()) {
            return answer;
        }
        let refused = self.clone();
        Box::pin(answer.map(move |chunk| chunk.map_err(|error| refused.record_rejection(&provider, &prompt, error))))
    }

    fn record_rejection(&self, provider: &impl Provider, prompt: &Prompt, error: Error) -> Error {
        let body = || {
            let request = provider.request(prompt)?;
            serde_json::from_slice(&request.body).ok()
        };
        let named = refused(&error, prompt, body);
        if named.is_empty() {
            return error;
        }
        tracing::warn!(%error, "service rejected media; it is replaced with text");
        let reason = format!("The service rejected it: {}", error.message);
        for media in named {
            self.add(key(&prompt.model, media), &reason);
        }
        Error { kind: Kind::BadRequest, should_retry: Some(true), ..error }
    }

    fn add(&self, key: Key, reason: &str) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = refused.reasons.insert(key.clone(), reason.to_owned());
        if before.is_some() {
            return;
        }
        refused.order.push_back(key);
        if refused.order.len() > MAX_ENTRIES
            && let Some(oldest) = refused.order.pop_front()
        {
            refused.reasons.remove(&oldest);
        }
    }
}

fn key(model: &str, media: &Media) -> Key {
    (model.to_owned(), identity(media).to_owned())
}

/// The media of a prompt that an error is about: the media at the path that the error names.
/// Otherwise, if its message or code is about a kind of media, the media of that kind which the
/// model has not yet responded to, or all of that kind.
fn refused<'a>(error: &Error, prompt: &'a Prompt, body: impl FnOnce() -> Option<Value>) -> Vec<&'a Media> {
    match error.kind {
        Kind::BadRequest | Kind::TooLong => {}
        Kind::Auth | Kind::RateLimited | Kind::Timeout | Kind::Overloaded | Kind::Broken => {
            return Vec::new();
        }
    }
    let named = path(&error.message).and_then(|path| {
        let body = body()?;
        medium(prompt, content_at(&body, path)?)
    });
    if named.is_some() {
        return named.into_iter().collect();
    }
    match (error.kind, kind(error)) {
        (Kind::BadRequest, Some(kind)) => unanswered(prompt, error, kind),
        (_, _) => Vec::new(),
    }
}

/// A path into the conversation, such as `messages.1.content.0.image` or `input[1].content[0]`.
fn path(message: &str) -> Option<&str> {
    static PATH: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:messages|input|contents)(?:\.?\[\d+\]|\.\d+)(?:\.?\[\d+\]|\.\w+)*")
            .expect("a constant, and tested")
    });
    PATH.find(message).map(|found| found.as_str())
}

/// The content of the media part that a path points at or into. A segment that is not a field is
/// the name of a variant.
fn content_at<'a>(body: &'a Value, path: &str) -> Option<&'a str> {
    let mut node = body;
    for step in path.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        if let Some(content) = content(node) {
            return Some(content);
        }
        node = match step.parse::<usize>() {
            Ok(index) => node.get(index)?,
            Err(_) => node.get(step).unwrap_or(node),
        };
    }
    content(node)
}

/// The content of a part of a request: base64 or a URL. Returns `None` if the part is not media.
fn content(node: &Value) -> Option<&str> {
    CONTENTS.iter().find_map(|place| node.pointer(place)?.as_str())
}

/// The media of a prompt that has this content.
fn medium<'a>(prompt: &'a Prompt, content: &str) -> Option<&'a Media> {
    let data = match content.split_once(";base64,") {
        Some((_, data)) => data,
        None => content,
    };
    let is_it = |media: &&Media| match &media.source {
        Source::Url(url) => url == content,
        Source::Blob(kept) => prompt
            .contents
            .get(&kept.id)
            .is_some_and(|bytes| data.len() == bytes.len().div_ceil(3) * 4 && STANDARD.encode(bytes) == data),
    };
    let messages = prompt.transcript.messages().iter();
    messages.flat_map(|message| message.media()).find(is_it)
}

/// The kind of media that an error is about. Returns `None` if it is about something else.
fn kind(error: &Error) -> Option<MediaKind> {
    static KINDS: LazyLock<Vec<(MediaKind, Regex)>> = LazyLock::new(|| {
        let about = |(kind, words): (MediaKind, &str)| {
            let near = r"[^.;]{0,80}";
            let pattern = format!(r"(?i)\b{CANNOT}\b{near}\b{words}\b|\b{words}\b{near}\b{CANNOT}\b");
            (kind, Regex::new(&pattern).expect("a constant, and tested"))
        };
        MEDIA_NOUNS.into_iter().map(about).collect()
    });
    if IMAGE_CODES.contains(&error.code.as_str()) {
        return Some(MediaKind::Image);
    }
    let found = KINDS.iter().find(|(_, words)| words.is_match(&error.message));
    found.map(|(kind, _)| *kind)
}

/// The media of a kind which the model has not yet responded to, or all of that kind if there is
/// none. Only the media whose URL the error names, if it names one.
fn unanswered<'a>(prompt: &'a Prompt, error: &Error, kind: MediaKind) -> Vec<&'a Media> {
    let messages = prompt.transcript.messages();
    let wrote = |message| authorship::wrote(&error.provider, &prompt.model, message);
    let answered = messages.iter().rposition(wrote).map_or(0, |at| at + 1);
    let of = |from: usize| -> Vec<&'a Media> {
        let media = messages[from..].iter().flat_map(|message| message.media());
        media.filter(|media| media.kind() == kind).collect()
    };
    let is_named = |media: &&&Media| match &media.source {
        Source::Url(url) => error.message.contains(url.as_str()),
        Source::Blob(_) => false,
    };
    let all = of(0);
    let named: Vec<&Media> = all.iter().filter(is_named).copied().collect();
    let new = of(answered);
    let mut choices = [named, new, all].into_iter();
    choices.find(|media| !media.is_empty()).unwrap_or_default()
}
