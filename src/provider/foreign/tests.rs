//! Tests of reading messages of other APIs and writing them again.
//!
//! A round trip through this API does not preserve:
//! - empty messages, blank texts where the service rejects them, fields that are not content
//!   (`name`, `detail`, `cache_control`, `logprobs`), and citations other than Anthropic's;
//! - the form: a single text and a list of one text are equivalent, consecutive messages of one
//!   role are merged where the service requires alternation, results come first and in the order of
//!   their calls, and content without a stated type gets one;
//! - the form of results: errors and denials become text where the service has no field for them,
//!   values other than text become JSON text, except in the AI SDK's format; media follow the
//!   results where results cannot contain them;
//! - arguments that are not an object become `{}`: such a call was never run;
//! - reasoning without a signature or from another model.

mod exports;
mod flaws;
mod round_trips;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{ForeignContent, ForeignConversation, ForeignMedia, ForeignMessage, ForeignPart, ForeignSource, read};
use crate::{
    config::HttpConfig,
    context::testing,
    model::{
        BlobId, CallId, Content, Contents, Media, Message, ModelResponse, NewContent, OutputPart, Part, PromptFormat,
        ProviderItem, Role, ToolCall, ToolOutcome, ToolResult,
        media::{BlobRef, Source},
    },
    provider::{
        self, Provider,
        anthropic::Anthropic,
        gemini::Gemini,
        http::Settings,
        openai::{self, OpenAi},
        responses::{self, Responses},
    },
};

/// The configured name of every provider in these tests.
const PROVIDER: &str = "main";

/// A format, and a model that receives requests in it.
#[derive(Debug, Clone, Copy)]
struct Case {
    shape: PromptFormat,
    model: &'static str,
    /// The field of a request that holds the messages.
    field: &'static str,
    /// The dialect of recorded responses.
    recorded: &'static str,
}

/// The four protocols, each with a model that accepts its reasoning back.
const SERVICES: [Case; 4] = [
    Case { shape: PromptFormat::OpenAiChat, model: "some/model", field: "messages", recorded: "openai_chat" },
    Case { shape: PromptFormat::Anthropic, model: "claude-sonnet-4-5", field: "messages", recorded: "anthropic" },
    Case { shape: PromptFormat::OpenAiResponses, model: "gpt-5", field: "input", recorded: "openai_responses" },
    Case { shape: PromptFormat::Gemini, model: "gemini-3-pro-preview", field: "contents", recorded: "gemini" },
];

impl Case {
    /// The same model called through the AI SDK.
    fn by_sdk(self) -> Self {
        Self { shape: PromptFormat::AiSdk, field: "messages", ..self }
    }

    /// The same model called through version 7 of the AI SDK.
    fn by_sdk_7(self) -> Self {
        Self { shape: PromptFormat::AiSdk7, ..self.by_sdk() }
    }

    fn provider(self) -> Arc<dyn Provider> {
        let settings =
            Settings { base_url: "http://127.0.0.1:1/v1".to_owned(), headers: Vec::new(), http: HttpConfig::default() };
        let none = BTreeMap::new();
        match self.shape {
            PromptFormat::Anthropic => Arc::new(Anthropic::new(PROVIDER, settings, none).expect("a client")),
            PromptFormat::OpenAiResponses => {
                let dialect = responses::dialect::named("openai").expect("a dialect");
                Arc::new(Responses::new(PROVIDER, settings, dialect, none).expect("a client"))
            }
            PromptFormat::Gemini => Arc::new(Gemini::new(PROVIDER, settings, none).expect("a client")),
            PromptFormat::OpenAiChat
            | PromptFormat::AiSdk
            | PromptFormat::AiSdk7
            | PromptFormat::Neutral
            | PromptFormat::Native => {
                let dialect = openai::dialect::named("openrouter").expect("a dialect");
                Arc::new(OpenAi::new(PROVIDER, settings, dialect, none).expect("a client"))
            }
        }
    }

    /// The messages of the request for a conversation, without prompt cache markers.
    fn render(self, messages: Vec<Message>, contents: Contents) -> Value {
        let prompt = crate::model::Prompt { model: self.model.to_owned(), contents, ..testing::prompt(messages) };
        let request = match self.shape {
            PromptFormat::AiSdk | PromptFormat::AiSdk7 => provider::request_in(self.shape, &prompt, PROVIDER),
            PromptFormat::OpenAiChat
            | PromptFormat::OpenAiResponses
            | PromptFormat::Anthropic
            | PromptFormat::Gemini
            | PromptFormat::Neutral
            | PromptFormat::Native => self.provider().request(&prompt),
        };
        let body = request.expect("a request").body;
        let mut body: Value = serde_json::from_slice(&body).expect("JSON");
        let mut messages = body[self.field].take();
        unmark(&mut messages);
        messages
    }

    /// Reads messages, as written by this model.
    fn import(self, messages: &Value) -> (Vec<Message>, Contents) {
        let ForeignConversation { messages, flaws } = read(self.shape, &messages.to_string(), "made_");
        assert_eq!(flaws, [], "{:?}", self.shape);
        let mut import = Import::default();
        let messages = messages.into_iter().map(|message| import.message(message, self.model)).collect();
        (messages, import.contents)
    }

    /// Reads messages and encodes them again.
    fn back(self, messages: &Value) -> Value {
        let (messages, contents) = self.import(messages);
        self.render(messages, contents)
    }
}

fn unmark(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("cache_control");
            object.values_mut().for_each(unmark);
        }
        Value::Array(items) => items.iter_mut().for_each(unmark),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A message by a model of the provider.
fn written_by(model: &str, parts: Vec<Part>) -> Message {
    let response = ModelResponse { provider: PROVIDER.to_owned(), ..testing::response(&format!("{PROVIDER}/{model}")) };
    Message { response: Some(response), ..testing::message(Role::Assistant, parts) }
}

/// Converts messages to their stored form.
#[derive(Default)]
struct Import {
    contents: Contents,
    names: BTreeMap<String, String>,
}

impl Import {
    fn message(&mut self, message: ForeignMessage, model: &str) -> Message {
        let ForeignMessage { at: _, role, parts } = message;
        let parts = parts.into_iter().map(|part| self.part(part)).collect();
        if role == Role::Assistant { written_by(model, parts) } else { testing::message(role, parts) }
    }

    fn part(&mut self, part: ForeignPart) -> Part {
        let ForeignPart { at: _, content, citations, metadata, sanitized } = part;
        let content = match content {
            ForeignContent::Text(text) => Content::Text(text),
            ForeignContent::Reasoning { text, redacted } => Content::Reasoning { text, redacted },
            ForeignContent::Refusal(text) => Content::Refusal(text),
            ForeignContent::Media(media) => Content::Media(self.media(media)),
            ForeignContent::Call { id, name, arguments } => {
                self.names.insert(id.clone(), name.clone());
                let arguments = if arguments.is_empty() { "{}".to_owned() } else { arguments };
                Content::ToolCall(ToolCall { id: CallId::new(id), name, arguments })
            }
            ForeignContent::Result { call, parts: given, outcome } => Content::ToolResult(ToolResult {
                name: self.names.get(&call).cloned().unwrap_or_default(),
                call: CallId::new(call),
                parts: given.into_iter().map(|given| self.given(given)).collect(),
                outcome,
                truncation: None,
                display_text: String::new(),
            }),
            ForeignContent::Item { kind, json, title, reader } => Content::ProviderItem(ProviderItem {
                provider: reader.unwrap_or(PROVIDER).to_owned(),
                kind,
                json,
                title,
            }),
        };
        Part { content, citations, provider_metadata: metadata, sanitized }
    }

    fn given(&mut self, given: ForeignContent) -> OutputPart {
        match given {
            ForeignContent::Text(text) => OutputPart::Text(text),
            ForeignContent::Media(media) => OutputPart::Media(self.media(media)),
            other @ (ForeignContent::Reasoning { .. }
            | ForeignContent::Refusal(_)
            | ForeignContent::Call { .. }
            | ForeignContent::Result { .. }
            | ForeignContent::Item { .. }) => panic!("{other:?}"),
        }
    }

    fn media(&mut self, media: ForeignMedia) -> Media {
        let ForeignMedia { media_type, filename, source } = media;
        let source = match source {
            ForeignSource::Url(url) => Source::Url(url),
            ForeignSource::Data(data) => Source::Blob(keep(&mut self.contents, &media_type, data)),
        };
        Media { media_type, source, filename }
    }
}

/// Stores content.
fn keep(contents: &mut Contents, media_type: &str, data: Vec<u8>) -> BlobRef {
    let content = NewContent::new(media_type.to_owned(), data.clone());
    let id: BlobId = content.id().clone();
    let bytes = data.len() as u64;
    contents.insert(id.clone(), data.into());
    BlobRef { id, bytes, pixels: None }
}
