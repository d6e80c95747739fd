//! Converts messages of the AI SDK to provider-neutral messages: versions 5 to 7, and parts of version 4.

use serde_json::{Map, Value, json};

use super::{KIND, OPTIONS, READER};
use crate::{
    model::{ProviderItem, Role, ToolOutcome},
    provider::{
        authorship,
        foreign::{
            self, FlawKind, ForeignContent as Content, ForeignMedia, ForeignPart as Part, Importer, Node, Object, PDF,
            PICTURE, at_url, decode_base64, from_data_or_url, inline, or,
        },
    },
};

/// The media type of a text that does not state one.
const TEXT: &str = "text/plain";

pub(crate) fn read(messages: &[Node<'_>], reading: &mut Importer<'_>) {
    for node in messages {
        let Some(message) = node.object(reading) else {
            continue;
        };
        let role = message.required("role", reading);
        match role.as_str() {
            "system" => {
                let parts = parts(&message, text_only, reading);
                reading.add(&message.at, Role::System, parts);
            }
            "user" => {
                let parts = parts(&message, user_part, reading);
                reading.add(&message.at, Role::User, parts);
            }
            "assistant" => {
                let mut parts = parts(&message, answered, reading);
                join_reasoning(&mut parts);
                reading.add(&message.at, Role::Assistant, parts);
            }
            "tool" => {
                let parts = parts(&message, resulted, reading);
                reading.add(&message.at, Role::Tool, parts);
            }
            other => reading.unknown_role(&message, other, "system, user, assistant or tool"),
        }
    }
}

/// Reads a part of a given type.
type Read = fn(&Object<'_>, &str, &mut Importer<'_>) -> Option<Part>;

/// Reads the parts of a message's content, which may be one text. UI messages have `parts` instead.
fn parts(message: &Object<'_>, read: Read, reading: &mut Importer<'_>) -> Vec<Part> {
    let Some(content) = message.get("content") else {
        let why = if message.get("parts").is_some() {
            "must be set: convert UIMessages with convertToModelMessages"
        } else {
            "must be set"
        };
        reading.note(message.path("content"), FlawKind::Missing, why);
        return Vec::new();
    };
    if !content.is_array() {
        let text = Part::text(&content.at, content.text(reading));
        let own = options(message);
        return text.into_iter().map(|part| part.with(&own)).collect();
    }
    let mut parts = Vec::new();
    for part in content.objects(reading) {
        let kind = part.required("type", reading);
        if !kind.is_empty() {
            parts.extend(read(&part, &kind, reading));
        }
    }
    parts
}

/// The provider options of a part or a message, under the field names of several versions.
fn options(object: &Object<'_>) -> Option<Value> {
    let of_version_4 = || object.get("experimental_providerMetadata");
    let of_version_5 = || object.get("providerMetadata").or_else(of_version_4);
    let options = object.get("providerOptions").or_else(of_version_5)?.value();
    options.is_object().then_some(options)
}

impl Part {
    /// Adds the options of a tool result, and whether the result is a JSON value.
    fn of_result(self, options: Option<Value>, is_json: bool) -> Self {
        let mut own = Map::new();
        if let Some(options) = options {
            own.insert("providerOptions".to_owned(), options);
        }
        if is_json {
            own.insert("json".to_owned(), Value::Bool(true));
        }
        self.with_metadata(KIND, own)
    }

    /// Adds options: unchanged, and in the form that contextd's providers read.
    fn with(self, options: &Option<Value>) -> Self {
        let Some(options) = options else {
            return self;
        };
        let mut metadata = own_metadata(options);
        metadata.insert(KIND.to_owned(), json!({ "providerOptions": options }));
        let metadata = Some(Value::Object(metadata).to_string());
        Self { metadata, ..self }
    }
}

/// The options in the form that contextd's providers read.
fn own_metadata(options: &Value) -> Map<String, Value> {
    let mut metadata = Map::new();
    for (kind, name, providers, option) in OPTIONS {
        let words = providers.iter().filter_map(|it| options[*it][option].as_str());
        if let Some(word) = words.into_iter().find(|word| !word.is_empty()) {
            let entry = metadata.entry(kind).or_insert_with(|| json!({}));
            entry[name] = json!(word);
        }
    }
    metadata
}

fn text(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let text = part.string("text", reading);
    let own = options(part);
    let kept = !text.is_empty() || own.as_ref().is_some_and(|own| !own_metadata(own).is_empty());
    kept.then(|| Part::new(&part.at, Content::Text(text)).with(&own))
}

fn text_only(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        _ => reading.unknown_type(part, "text"),
    }
}

fn user_part(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        "image" => medium(part, "image", PICTURE, reading),
        "file" => medium(part, "data", PDF, reading),
        _ => reading.unknown_type(part, "text, image or file"),
    }
}

/// Reads an image or a file as a part.
fn medium(part: &Object<'_>, name: &str, usual: &str, reading: &mut Importer<'_>) -> Option<Part> {
    let media = content(part, name, usual, reading)?;
    Some(Part::media(&part.at, media).with(&options(part)))
}

/// What a part states about its media, and the type that is assumed if it states none.
struct Stated<'a> {
    media_type: String,
    filename: String,
    usual: &'a str,
}

/// Reads content: base64, a `data:` URL or another URL.
fn content(part: &Object<'_>, name: &str, usual: &str, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let node = part.node(name, reading)?;
    let said = declared_type(part, reading);
    let stated = Stated {
        usual: usual_type(&said).unwrap_or(usual),
        media_type: whole_type(said),
        filename: part.string("filename", reading),
    };
    if node.is_object() {
        return tagged(&node, stated, reading);
    }
    if !node.is_text() {
        let why = "must be base64 content, a URL or, since version 7, an object";
        reading.note(node.at.clone(), FlawKind::Malformed, why);
        return None;
    }
    text_or_address(&node, stated, reading)
}

/// Reads an object that states its own type: base64 content, a URL or a text.
fn tagged(node: &Node<'_>, stated: Stated<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let data = node.object(reading)?;
    let kind = data.get("type").filter(Node::is_text);
    let kind = kind.map(|kind| kind.text(reading)).unwrap_or_default();
    let name = match kind.as_str() {
        "data" | "url" | "text" => kind.as_str(),
        _ => {
            let known = "data, url or text (references to content in the service are not supported)";
            return reading.unknown_type(&data, known);
        }
    };
    let Some(inner) = data.get(name).filter(Node::is_text) else {
        return reading.missing(&data, name, "must be set to a string");
    };
    match name {
        "data" => stated.in_base64(&inner, reading),
        "url" => stated.at_address(&inner, reading),
        _ => {
            let text = inner.text(reading).into_bytes();
            Some(inline(or(stated.media_type, TEXT), stated.filename, text))
        }
    }
}

/// Reads a string: base64 content, a `data:` URL or another URL.
fn text_or_address(node: &Node<'_>, stated: Stated<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let start = node.text(reading);
    let start = start.get(..8).unwrap_or(&start).to_ascii_lowercase();
    let schemes = ["data:", "http:", "https:"];
    if schemes.iter().any(|scheme| start.starts_with(scheme)) {
        stated.at_address(node, reading)
    } else {
        stated.in_base64(node, reading)
    }
}

impl Stated<'_> {
    fn at_address(self, node: &Node<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
        from_data_or_url(node, self.media_type, self.filename, self.usual, reading)
    }

    fn in_base64(self, node: &Node<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
        let data = decode_base64(node, reading)?;
        Some(inline(or(self.media_type, self.usual), self.filename, data))
    }
}

/// The media type as stated.
fn declared_type(part: &Object<'_>, reading: &mut Importer<'_>) -> String {
    let said = part.string("mediaType", reading);
    if said.is_empty() { part.string("mimeType", reading) } else { said }
}

/// Returns a complete media type. Empty for `image/*` or `image`, which do not state the subtype.
fn whole_type(said: String) -> String {
    if said.ends_with("/*") || !said.contains('/') {
        return String::new();
    }
    said
}

/// The default for a media type without a subtype.
fn usual_type(said: &str) -> Option<&'static str> {
    match said.trim_end_matches("/*") {
        "image" => Some(PICTURE),
        "audio" => Some("audio/mpeg"),
        "video" => Some("video/mp4"),
        "text" => Some(TEXT),
        _ => None,
    }
}

/// Reads a part of an assistant message.
fn answered(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        "reasoning" => reasoning(part, reading),
        "redacted-reasoning" => {
            let data = part.required("data", reading);
            let own = json!({ "anthropic": { "redactedData": data } });
            Some(Part::reasoning(&part.at, String::new()).with(&Some(own)))
        }
        "file" => medium(part, "data", PDF, reading),
        // Files that a model shows as its reasoning, and provider-specific parts.
        "reasoning-file" | "custom" => Some(kept(part, kind, reading)),
        "tool-call" if part.is_true("providerExecuted") => Some(kept(part, kind, reading)),
        "tool-result" => Some(kept(part, kind, reading)),
        "tool-call" => Some(call(part, reading)),
        // The result of the call states the outcome.
        "tool-approval-request" => None,
        _ => {
            let known = "text, reasoning, reasoning-file, file, custom, tool-call or tool-result";
            reading.unknown_type(part, known)
        }
    }
}

fn reasoning(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let text = part.string("text", reading);
    // Version 4 had no options for the signature.
    let signature = part.get("signature").map(|node| node.text(reading));
    let own = options(part).or_else(|| signature.map(|signature| json!({"anthropic": {"signature": signature}})));
    if text.is_empty() && own.is_none() {
        return None;
    }
    Some(Part::reasoning(&part.at, text).with(&own))
}

/// Merges the metadata of consecutive reasoning parts of one Responses API item, each of which
/// names the item. Only the last part keeps it, so that the item is sent once.
fn join_reasoning(parts: &mut [Part]) {
    const RESPONSES: &str = "openai-responses";
    let read = |part: &Part| -> Option<Map<String, Value>> {
        let is_reasoning = matches!(part.content, Content::Reasoning { .. });
        let metadata = part.metadata.as_deref().filter(|_| is_reasoning)?;
        serde_json::from_str(metadata).ok()
    };
    for at in 1..parts.len() {
        let (Some(mut before), Some(mut next)) = (read(&parts[at - 1]), read(&parts[at])) else {
            continue;
        };
        let id = |own: &Map<String, Value>| own.get(RESPONSES)?.get("id").cloned();
        if id(&before).is_none() || id(&before) != id(&next) {
            continue;
        }
        if let Some(Value::Object(mut item)) = before.remove(RESPONSES) {
            if let Some(Value::Object(last)) = next.remove(RESPONSES) {
                item.extend(last);
            }
            next.insert(RESPONSES.to_owned(), Value::Object(item));
        }
        parts[at - 1].metadata = Some(Value::Object(before).to_string());
        parts[at].metadata = Some(Value::Object(next).to_string());
    }
}

fn call(part: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let id = part.required("toolCallId", reading);
    let name = part.required("toolName", reading);
    let input = part.get("input").or_else(|| part.get("args"));
    // Invalid arguments are kept as the text that the model wrote.
    let arguments = input.map(|input| input.text_or_json(reading));
    Part::call(&part.at, id, name, arguments.unwrap_or_default()).with(&options(part))
}

/// Keeps a provider-executed tool call or its result unchanged.
fn kept(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Part {
    let item = ProviderItem {
        provider: String::new(),
        kind: kind.to_owned(),
        json: part.json(),
        title: part.string("toolName", reading),
    };
    Part::item(&part.at, item, Some(READER))
}

/// Reads a part of a tool message. Approval responses are skipped: the results of the calls reflect
/// them.
fn resulted(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "tool-result" => {
            let call = part.required("toolCallId", reading);
            let Output { given, outcome, is_json } = output(part, reading);
            let result = Part::result(&part.at, call, given, outcome);
            Some(result.of_result(options(part), is_json))
        }
        "tool-approval-response" => None,
        _ => reading.unknown_type(part, "tool-result"),
    }
}

/// The output of a tool call.
#[derive(Debug)]
struct Output {
    given: Vec<Part>,
    outcome: ToolOutcome,
    /// The output was a JSON value rather than text.
    is_json: bool,
}

fn output(part: &Object<'_>, reading: &mut Importer<'_>) -> Output {
    let text = |text: String| vec![Part::new(&part.at, Content::Text(text))];
    let Some(output) = part.get("output") else {
        // Version 4 stored the return value of the tool.
        let result = part.get("result");
        let given = result.as_ref().map(|node| text(node.text_or_json(reading)));
        return Output {
            given: given.unwrap_or_default(),
            outcome: foreign::outcome(part.is_true("isError")),
            is_json: result.is_some_and(|node| !node.is_text()),
        };
    };
    let Some(output) = output.object(reading) else {
        return Output { given: Vec::new(), outcome: ToolOutcome::Success, is_json: false };
    };
    let kind = output.required("type", reading);
    let value = output.get("value");
    let outcome = match kind.as_str() {
        "execution-denied" => ToolOutcome::Denied,
        kind => foreign::outcome(kind.starts_with("error")),
    };
    let given = match (kind.as_str(), value) {
        ("text" | "error-text", Some(value)) => text(value.text(reading)),
        ("json" | "error-json", Some(value)) => text(value.json()),
        ("content", Some(value)) => {
            let pieces = value.objects(reading);
            let given = pieces.iter().filter_map(|it| given(it, reading));
            given.collect()
        }
        ("execution-denied", _) => {
            let reason = Part::text(&output.at, output.string("reason", reading));
            reason.into_iter().collect()
        }
        // JSON has no `undefined`.
        ("text" | "error-text" | "json" | "error-json" | "content", None) => Vec::new(),
        ("", _) => Vec::new(),
        (_, _) => {
            let known = "text, json, error-text, error-json, content or execution-denied";
            reading.unknown_type(&output, known).unwrap_or_default()
        }
    };
    Output { given, outcome, is_json: kind.ends_with("json") }
}

/// Reads one element of a tool result.
fn given(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let kind = piece.required("type", reading);
    let media = match kind.as_str() {
        "" => return None,
        "text" => {
            let text = Content::Text(piece.string("text", reading));
            return Some(Part::new(&piece.at, text));
        }
        "media" | "file-data" | "file" => content(piece, "data", PDF, reading),
        "image-data" | "image" => content(piece, "data", PICTURE, reading),
        "file-url" => address(piece, PDF, reading),
        "image-url" => address(piece, PICTURE, reading),
        _ => {
            let known = "text, file, media, file-data, file-url, image-data or image-url";
            reading.unknown_type(piece, known)
        }
    };
    media.map(|media| Part::media(&piece.at, media))
}

fn address(piece: &Object<'_>, usual: &str, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let url = piece.required("url", reading);
    let media_type = whole_type(declared_type(piece, reading));
    let filename = piece.string("filename", reading);
    (!url.is_empty()).then(|| at_url(url, media_type, filename, usual))
}

/// The SDK options with which a part was imported, from its metadata. Returns `None` if it has no
/// options.
pub(super) fn kept_options(part: &crate::model::Part) -> Option<Value> {
    authorship::attached(KIND, part, "providerOptions")
}
