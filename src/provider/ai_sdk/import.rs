//! Reads messages of the AI SDK into neutral messages: versions 5 to 7, and parts of version 4.

use serde_json::{Map, Value, json};

use super::{KIND, READER};
use crate::{
    model::Role,
    provider::{
        authorship,
        foreign::{
            FlawKind, ForeignContent as Content, ForeignMedia, ForeignOutcome as Outcome,
            ForeignPart as Part, ForeignResultPart as Given, Importer, Node, Object, at_url,
            decode_base64, from_data_or_url, inline,
        },
    },
};

/// The media type of an image that does not state one.
const PICTURE: &str = "image/jpeg";
/// The media type of a file that does not state one.
const PDF: &str = "application/pdf";

/// The media type of a text that does not state one.
const TEXT: &str = "text/plain";

pub(in crate::provider) fn read(messages: &[Node<'_>], reading: &mut Importer<'_>) {
    for node in messages {
        let Some(message) = node.object(reading) else {
            continue;
        };
        let role = message.required("role", reading);
        match role.as_str() {
            "system" => {
                let parts = parts(&message, text_only, reading);
                reading.add(message.at(), Role::System, parts);
            }
            "user" => {
                let parts = parts(&message, user_part, reading);
                reading.add(message.at(), Role::User, parts);
            }
            "assistant" => {
                let mut parts = parts(&message, answered, reading);
                join_reasoning(&mut parts);
                reading.add(message.at(), Role::Assistant, parts);
            }
            "tool" => {
                let parts = parts(&message, resulted, reading);
                reading.add(message.at(), Role::Tool, parts);
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
        let text = Part::text(content.at(), content.text(reading));
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
    [
        "providerOptions",
        "providerMetadata",
        "experimental_providerMetadata",
    ]
    .iter()
    .find_map(|name| object.get(name))
    .map(|node| node.value())
    .filter(Value::is_object)
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
    let word = |provider: &str, name: &str| {
        let word = options[provider][name].as_str();
        word.filter(|word| !word.is_empty())
    };
    let mut metadata = Map::new();
    let mut add = |kind: &str, entries: &[(&str, Option<&str>)]| {
        let entries = entries.iter();
        let known: Map<String, Value> = entries
            .filter_map(|(name, word)| Some(((*name).to_owned(), json!(word.as_ref()?))))
            .collect();
        if !known.is_empty() {
            metadata.insert(kind.to_owned(), Value::Object(known));
        }
    };
    add(
        "anthropic",
        &[
            ("signature", word("anthropic", "signature")),
            ("redacted_thinking", word("anthropic", "redactedData")),
        ],
    );
    let of_openai = |name| word("openai", name).or_else(|| word("azure", name));
    add(
        "openai-responses",
        &[
            ("id", of_openai("itemId")),
            ("encrypted_content", of_openai("reasoningEncryptedContent")),
            ("phase", of_openai("phase")),
        ],
    );
    let of_google = |name| word("google", name).or_else(|| word("vertex", name));
    add(
        "gemini",
        &[("thoughtSignature", of_google("thoughtSignature"))],
    );
    metadata
}

fn text(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let text = part.string("text", reading);
    let own = options(part);
    let kept = !text.is_empty()
        || own
            .as_ref()
            .is_some_and(|own| !own_metadata(own).is_empty());
    kept.then(|| Part::new(part.at(), Content::Text(text)).with(&own))
}

fn text_only(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        _ => {
            reading.unknown_type(part, "text");
            None
        }
    }
}

fn user_part(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        "image" => medium(part, "image", PICTURE, reading),
        "file" => medium(part, "data", PDF, reading),
        _ => {
            reading.unknown_type(part, "text, image or file");
            None
        }
    }
}

/// Reads an image or a file as a part.
fn medium(part: &Object<'_>, name: &str, usual: &str, reading: &mut Importer<'_>) -> Option<Part> {
    let media = content(part, name, usual, reading)?;
    Some(Part::new(part.at(), Content::Media(media)).with(&options(part)))
}

/// Reads content: base64, a `data:` URL or another URL.
fn content(
    part: &Object<'_>,
    name: &str,
    usual: &str,
    reading: &mut Importer<'_>,
) -> Option<ForeignMedia> {
    let Some(node) = part.get(name) else {
        reading.note(part.path(name), FlawKind::Missing, "must be set");
        return None;
    };
    let said = declared_type(part, reading);
    let usual = usual_type(&said).unwrap_or(usual);
    let media_type = whole_type(said);
    let filename = part.string("filename", reading);
    if node.is_object() {
        return tagged(&node, (media_type, filename), usual, reading);
    }
    if !node.is_text() {
        let why = "must be base64 content, a URL or, since version 7, an object";
        reading.note(node.at().to_owned(), FlawKind::Malformed, why);
        return None;
    }
    text_or_address(&node, (media_type, filename), usual, reading)
}

/// Reads an object that states its own type: base64 content, a URL or a text.
fn tagged(
    node: &Node<'_>,
    (media_type, filename): (String, String),
    usual: &str,
    reading: &mut Importer<'_>,
) -> Option<ForeignMedia> {
    let data = node.object(reading)?;
    let kind = data.get("type").filter(Node::is_text);
    let kind = kind.map(|kind| kind.text(reading)).unwrap_or_default();
    let name = match kind.as_str() {
        "data" | "url" | "text" => kind.as_str(),
        _ => {
            let known =
                "data, url or text (references to content in the service are not supported)";
            reading.unknown_type(&data, known);
            return None;
        }
    };
    let Some(inner) = data.get(name).filter(Node::is_text) else {
        reading.note(
            data.path(name),
            FlawKind::Missing,
            "must be set to a string",
        );
        return None;
    };
    match name {
        "data" => in_base64(&inner, (media_type, filename), usual, reading),
        "url" => from_data_or_url(&inner, media_type, filename, usual, reading),
        _ => {
            let media_type = if media_type.is_empty() {
                TEXT.to_owned()
            } else {
                media_type
            };
            let text = inner.text(reading);
            Some(inline(media_type, filename, text.into_bytes()))
        }
    }
}

/// Reads a string: base64 content, a `data:` URL or another URL.
fn text_or_address(
    node: &Node<'_>,
    (media_type, filename): (String, String),
    usual: &str,
    reading: &mut Importer<'_>,
) -> Option<ForeignMedia> {
    let start = node.text(reading);
    let start = start.get(..8).unwrap_or(&start).to_ascii_lowercase();
    if ["data:", "http:", "https:"]
        .iter()
        .any(|scheme| start.starts_with(scheme))
    {
        return from_data_or_url(node, media_type, filename, usual, reading);
    }
    in_base64(node, (media_type, filename), usual, reading)
}

fn in_base64(
    node: &Node<'_>,
    (media_type, filename): (String, String),
    usual: &str,
    reading: &mut Importer<'_>,
) -> Option<ForeignMedia> {
    let data = decode_base64(node, reading)?;
    let media_type = if media_type.is_empty() {
        usual.to_owned()
    } else {
        media_type
    };
    Some(inline(media_type, filename, data))
}

/// The media type as stated.
fn declared_type(part: &Object<'_>, reading: &mut Importer<'_>) -> String {
    let said = part.string("mediaType", reading);
    if said.is_empty() {
        part.string("mimeType", reading)
    } else {
        said
    }
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
            let content = Content::Reasoning {
                text: String::new(),
                redacted: true,
            };
            Some(Part::new(part.at(), content).with(&Some(own)))
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
            reading.unknown_type(
                part,
                "text, reasoning, reasoning-file, file, custom, tool-call or tool-result",
            );
            None
        }
    }
}

fn reasoning(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let text = part.string("text", reading);
    // Version 4 had no options for the signature.
    let signature = part.get("signature").map(|node| node.text(reading));
    let own = options(part)
        .or_else(|| signature.map(|signature| json!({"anthropic": {"signature": signature}})));
    if text.is_empty() && own.is_none() {
        return None;
    }
    let content = Content::Reasoning {
        redacted: text.is_empty(),
        text,
    };
    Some(Part::new(part.at(), content).with(&own))
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
    let arguments = input.map(|input| {
        if input.is_text() {
            input.text(reading)
        } else {
            input.json()
        }
    });
    let content = Content::Call {
        id,
        name,
        arguments: arguments.unwrap_or_default(),
    };
    Part::new(part.at(), content).with(&options(part))
}

/// Keeps a provider-executed tool call or its result unchanged.
fn kept(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Part {
    let content = Content::Item {
        kind: kind.to_owned(),
        json: part.json(),
        title: part.string("toolName", reading),
        reader: Some(READER),
    };
    Part::new(part.at(), content)
}

/// Reads a part of a tool message. Approval responses are skipped: the results of the calls reflect
/// them.
fn resulted(part: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "tool-result" => {
            let call = part.required("toolCallId", reading);
            let Output {
                given,
                outcome,
                is_json,
            } = output(part, reading);
            let content = Content::Result {
                call,
                parts: given,
                outcome,
            };
            Some(Part::new(part.at(), content).of_result(options(part), is_json))
        }
        "tool-approval-response" => None,
        _ => {
            reading.unknown_type(part, "tool-result");
            None
        }
    }
}

/// The output of a tool call.
#[derive(Debug, Default)]
struct Output {
    given: Vec<Given>,
    outcome: Outcome,
    /// The output was a JSON value rather than text.
    is_json: bool,
}

fn output(part: &Object<'_>, reading: &mut Importer<'_>) -> Output {
    let text = |text: String| vec![Given::Text(text)];
    let Some(output) = part.get("output") else {
        // Version 4 stored the return value of the tool.
        let result = part.get("result");
        let given = result
            .as_ref()
            .map(|node| text(text_or_json(node, reading)));
        return Output {
            given: given.unwrap_or_default(),
            outcome: Outcome::of(part.is_true("isError")),
            is_json: result.is_some_and(|node| !node.is_text()),
        };
    };
    let Some(output) = output.object(reading) else {
        return Output::default();
    };
    let kind = output.required("type", reading);
    let value = output.get("value");
    let outcome = match kind.as_str() {
        "execution-denied" => Outcome::Denied,
        kind => Outcome::of(kind.starts_with("error")),
    };
    let given = match (kind.as_str(), value) {
        ("text" | "error-text", Some(value)) => text(value.text(reading)),
        ("json" | "error-json", Some(value)) => text(value.json()),
        ("content", Some(value)) => {
            let mut given = Vec::new();
            for piece in value.objects(reading) {
                given.extend(self::given(&piece, reading));
            }
            given
        }
        ("execution-denied", _) => {
            let reason = Some(output.string("reason", reading));
            let reason = reason.filter(|reason| !reason.is_empty());
            reason.into_iter().map(Given::Text).collect()
        }
        // JSON has no `undefined`.
        ("text" | "error-text" | "json" | "error-json" | "content", None) => Vec::new(),
        ("", _) => Vec::new(),
        (_, _) => {
            let known = "text, json, error-text, error-json, content or execution-denied";
            reading.unknown_type(&output, known);
            Vec::new()
        }
    };
    Output {
        given,
        outcome,
        is_json: kind.ends_with("json"),
    }
}

/// A text unchanged, anything else as JSON.
fn text_or_json(node: &Node<'_>, reading: &mut Importer<'_>) -> String {
    if node.is_text() {
        node.text(reading)
    } else {
        node.json()
    }
}

/// Reads one element of a tool result.
fn given(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<Given> {
    let kind = piece.required("type", reading);
    let media = match kind.as_str() {
        "" => return None,
        "text" => return Some(Given::Text(piece.string("text", reading))),
        "media" | "file-data" | "file" => content(piece, "data", PDF, reading),
        "image-data" | "image" => content(piece, "data", PICTURE, reading),
        "file-url" => address(piece, PDF, reading),
        "image-url" => address(piece, PICTURE, reading),
        _ => {
            let known = "text, file, media, file-data, file-url, image-data or image-url";
            reading.unknown_type(piece, known);
            None
        }
    };
    media.map(Given::Media)
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
    authorship::attached_metadata(KIND, part)?.remove("providerOptions")
}
