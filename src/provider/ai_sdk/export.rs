//! Encodes a prompt as the arguments of the AI SDK's `streamText`. Encoding is pure and
//! deterministic.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{KIND, OPTIONS, READER, Version, import::kept_options};
use crate::{
    model::{
        Content, Contents, Generation, Media, Message, OutputPart, Part, Prompt, PromptFormat, PromptNote, Role,
        ToolCall, ToolOutcome, ToolResult,
        media::{Source, UNSUPPORTED_TEXT},
        message::StoredPart,
    },
    provider::{
        Request, anthropic, authorship,
        body::{Body, tool_choice},
        foreign::named,
        http::lenient,
        inputs::{self, Input},
        inserted, omissions,
    },
};

/// Encodes a prompt. `provider` is the configured name of the provider that serves the model.
pub(crate) fn request(prompt: &Prompt, provider: &str, version: Version) -> Request {
    let mut writer = Writer { version, prompt, provider, left_out: Vec::new() };
    let messages = prompt.transcript.messages().iter();
    let messages: Vec<Value> = messages.filter_map(|it| writer.message(it)).collect();
    let mut body = Body::default();
    let system = prompt.instructions();
    let system = Some(system).filter(|system| !system.is_empty());
    match version {
        Version::Five => body.set_some("system", system),
        Version::Seven => {
            body.set_some("instructions", system);
            let instructs = messages.iter().any(|message| message["role"] == "system");
            body.set_some("allowSystemInMessages", instructs.then_some(true));
        }
    }
    body.set("messages", messages);
    body.set_some("tools", tools(prompt));
    body.set_some("maxOutputTokens", prompt.max_output_tokens);
    settings(&mut body, &prompt.generation);
    Request {
        shape: match version {
            Version::Five => PromptFormat::AiSdk,
            Version::Seven => PromptFormat::AiSdk7,
        },
        body: body.bytes(),
        left_out: writer.left_out,
    }
}

fn tools(prompt: &Prompt) -> Option<Map<String, Value>> {
    let tool = |tool: &crate::model::Tool| {
        let schema = inserted::schema(tool).get();
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let described = json!({"description": tool.description, "inputSchema": schema});
        (tool.name.clone(), described)
    };
    let tools: Map<String, Value> = prompt.tools.iter().map(tool).collect();
    (!tools.is_empty()).then_some(tools)
}

/// Writes the settings that are arguments of the SDK itself.
fn settings(body: &mut Body, generation: &Generation) {
    let names = ["temperature", "topP", "topK", "seed", "stopSequences"];
    body.set_plain(generation, names);
    let of_tool = |name: &str| json!({"type": "tool", "toolName": name});
    let choice = generation.tool_choice.as_ref();
    body.set_some("toolChoice", choice.map(|it| tool_choice(it, of_tool)));
}

/// The state of one encoding.
struct Writer<'a> {
    version: Version,
    prompt: &'a Prompt,
    provider: &'a str,
    left_out: Vec<PromptNote>,
}

impl Writer<'_> {
    /// Encodes a message. Returns `None`, and notes it, if nothing in it can be sent.
    fn message(&mut self, message: &Message) -> Option<Value> {
        let (role, content) = match message.role {
            Role::System => ("system", self.instructions(message)),
            Role::User => ("user", self.user_content(message)),
            Role::Assistant => ("assistant", self.answer(message)),
            Role::Tool => ("tool", self.results(message)),
        };
        if content == json!([]) || content == json!("") {
            self.left_out.push(omissions::message(message));
            return None;
        }
        let mut written = json!({"role": role, "content": content});
        // The content of a system message is one text, so the options of the part become those of
        // the message.
        if message.role == Role::System
            && let [StoredPart { part, .. }] = message.parts.as_slice()
            && let Some(options) = kept_options(part)
        {
            written["providerOptions"] = options;
        }
        Some(written)
    }

    fn instructions(&self, message: &Message) -> Value {
        let texts: Vec<&str> = message.texts().filter(|text| !text.is_empty()).collect();
        json!(texts.join("\n\n"))
    }

    fn user_content(&self, message: &Message) -> Value {
        let parts = message.parts.iter().filter_map(|StoredPart { part, .. }| {
            let written = match inputs::of(&part.content)? {
                Input::Text(text) => text_part(text),
                Input::Media(media) => file(media, &self.prompt.contents, self.version),
            };
            Some(with(written, kept_options(part)))
        });
        plain(parts.collect())
    }

    fn answer(&mut self, message: &Message) -> Value {
        let own = authorship::wrote(self.provider, &self.prompt.model, message);
        let mut parts = Vec::new();
        for (position, StoredPart { part, .. }) in message.parts.iter().enumerate() {
            let options = own.then(|| options(part)).flatten();
            let written = match &part.content {
                Content::Text(text) | Content::Refusal(text) => {
                    (!text.is_empty() || options.is_some()).then(|| text_part(text))
                }
                Content::Reasoning { text, .. } => {
                    let options = own.then(|| self.proof(message, position)).flatten();
                    if text.is_empty() && options.is_none() {
                        self.note(message, position, omissions::REASONING);
                        continue;
                    }
                    parts.push(with(json!({"type": "reasoning", "text": text}), options));
                    continue;
                }
                Content::ToolCall(call) => Some(json!({
                    "type": "tool-call", "toolCallId": call.id.as_str(),
                    "toolName": call.name, "input": input(call),
                })),
                Content::Media(media) => Some(file(media, &self.prompt.contents, self.version)),
                Content::ProviderItem(item) if item.provider == READER => serde_json::from_str(&item.json).ok(),
                Content::ProviderItem(_) => {
                    let why = "The AI SDK does not support the item.";
                    self.note(message, position, why);
                    None
                }
                // The transcript is validated: assistant messages have no tool results.
                Content::ToolResult(_) | Content::Unknown(_) => None,
            };
            parts.extend(written.map(|written| with(written, options)));
        }
        plain(parts)
    }

    /// The options that prove reasoning to its provider. The parts of one Responses API item have
    /// them on the last part only.
    fn proof(&self, message: &Message, position: usize) -> Option<Value> {
        if anthropic::binds_prefix(&self.prompt.model) {
            return None;
        }
        let is_reasoning = |stored: &&StoredPart| matches!(stored.part.content, Content::Reasoning { .. });
        let mut pieces = message.parts[position..].iter().take_while(is_reasoning);
        pieces.find_map(|stored| options(&stored.part))
    }

    fn results(&self, message: &Message) -> Value {
        let parts = message.parts.iter().filter_map(|StoredPart { part, .. }| {
            let result = part.content.as_result()?;
            let contents = &self.prompt.contents;
            Some(tool_result(result, part, contents, self.version))
        });
        Value::Array(parts.collect())
    }

    fn note(&mut self, message: &Message, part: usize, why: &str) {
        self.left_out.push(omissions::part(message, part, why));
    }
}

pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A single text without options becomes a string, anything else an array of parts.
fn plain(parts: Vec<Value>) -> Value {
    match parts.as_slice() {
        [part] if part["type"] == "text" && part.get("providerOptions").is_none() => part["text"].clone(),
        _ => Value::Array(parts),
    }
}

pub(super) fn with(mut part: Value, options: Option<Value>) -> Value {
    if let Some(options) = options {
        part["providerOptions"] = options;
    }
    part
}

/// The options of a part that this model wrote: those it was imported with, or the metadata that
/// its provider attached, in the form of the SDK.
pub(super) fn options(part: &Part) -> Option<Value> {
    if let Some(options) = kept_options(part) {
        return Some(options);
    }
    let mut options = Map::new();
    for (kind, name, providers, option) in OPTIONS {
        if let Some(word) = authorship::attached(kind, part, name) {
            let entry = options.entry(providers[0]).or_insert_with(|| json!({}));
            entry[option] = word;
        }
    }
    (!options.is_empty()).then_some(Value::Object(options))
}

/// The arguments of a call. A call whose arguments are not a JSON object was never run, and is sent
/// without arguments.
fn input(call: &ToolCall) -> Value {
    lenient::value(inserted::arguments(call)).unwrap_or_else(|| json!({}))
}

pub(super) fn file(media: &Media, contents: &Contents, version: Version) -> Value {
    let Some(data) = data(media, contents) else {
        return text_part(UNSUPPORTED_TEXT);
    };
    let data = match (version, &media.source) {
        (Version::Seven, Source::Blob(_)) => json!({"type": "data", "data": data}),
        (Version::Seven, Source::Url(_)) | (Version::Five, _) => json!(data),
    };
    named(json!({"type": "file", "data": data, "mediaType": media.essence()}), "filename", media)
}

/// The content in base64, or the URL.
fn data(media: &Media, contents: &Contents) -> Option<String> {
    match &media.source {
        Source::Url(url) => Some(url.clone()),
        Source::Blob(kept) => Some(STANDARD.encode(contents.get(&kept.id)?)),
    }
}

/// A tool result with the options that it was imported with.
pub(super) fn tool_result(result: &ToolResult, part: &Part, contents: &Contents, version: Version) -> Value {
    let is_json = authorship::attached(KIND, part, "json").is_some();
    let written = json!({
        "type": "tool-result", "toolCallId": result.call.as_str(), "toolName": result.name,
        "output": output(result, is_json, contents, version),
    });
    with(written, kept_options(part))
}

/// The output of a call. The SDK has no form for a call that timed out or was cancelled; the text
/// of the result states it.
fn output(result: &ToolResult, is_json: bool, contents: &Contents, version: Version) -> Value {
    let words: Vec<&str> = result.texts().collect();
    let words = words.join("\n");
    let kept = |kind: &str| {
        let value: Value = is_json.then(|| serde_json::from_str(&words).ok())??;
        Some(json!({"type": kind, "value": value}))
    };
    match result.outcome {
        ToolOutcome::Success | ToolOutcome::TimedOut | ToolOutcome::Cancelled => {}
        // Neither form can hold files.
        ToolOutcome::Error | ToolOutcome::Denied if result.media().next().is_some() => {}
        ToolOutcome::Error => {
            let failed = || json!({"type": "error-text", "value": words});
            return kept("error-json").unwrap_or_else(failed);
        }
        ToolOutcome::Denied if words.is_empty() => return json!({"type": "execution-denied"}),
        ToolOutcome::Denied => return json!({"type": "execution-denied", "reason": words}),
    }
    match result.parts.as_slice() {
        [] => json!({"type": "text", "value": ""}),
        [OutputPart::Text(text)] => kept("json").unwrap_or_else(|| json!({"type": "text", "value": text})),
        given => {
            let pieces = given.iter().map(|given| piece(given, contents, version));
            json!({"type": "content", "value": pieces.collect::<Vec<_>>()})
        }
    }
}

fn piece(given: &OutputPart, contents: &Contents, version: Version) -> Value {
    let media = match given {
        OutputPart::Text(text) => return text_part(text),
        OutputPart::Media(media) => media,
    };
    match (&media.source, data(media, contents), version) {
        (_, None, _) => text_part(UNSUPPORTED_TEXT),
        (Source::Blob(_), Some(_), Version::Seven) => file(media, contents, version),
        (Source::Blob(_), Some(data), Version::Five) => {
            json!({"type": "media", "data": data, "mediaType": media.essence()})
        }
        (Source::Url(_), Some(url), Version::Seven) => {
            json!({"type": "file-url", "url": url, "mediaType": media.essence()})
        }
        (Source::Url(_), Some(url), Version::Five) => {
            let is_picture = media.kind() == crate::model::media::Kind::Image;
            let kind = if is_picture { "image-url" } else { "file-url" };
            json!({"type": kind, "url": url})
        }
    }
}
