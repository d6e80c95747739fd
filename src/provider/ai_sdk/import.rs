//! Messages of the AI SDK, read into neutral ones: those of its versions 5 to 7, and parts of
//! version 4.

use serde_json::{Map, Value, json};

use super::{KIND, READER};
use crate::{
    model::Role,
    provider::{
        authorship,
        foreign::{
            FlawKind, ForeignContent as Content, ForeignGiven as Given, ForeignMedia,
            ForeignOutcome as Outcome, ForeignPart as Part, Node, Object, Reading, at_address,
            encoded, from_data_or_url, inline,
        },
    },
};

/// What pictures are whose type is not said.
const PICTURE: &str = "image/jpeg";
/// What files are whose type is not said.
const PDF: &str = "application/pdf";

/// What texts are whose type is not said.
const TEXT: &str = "text/plain";

/// Reads all messages.
pub(in crate::provider) fn read(messages: &[Node<'_>], reading: &mut Reading<'_>) {
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
                let parts = parts(&message, said, reading);
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

/// How a part of a type is read.
type Read = fn(&Object<'_>, &str, &mut Reading<'_>) -> Option<Part>;

/// The parts of a content, which may be one text. Messages of the UI have `parts` in its place.
fn parts(message: &Object<'_>, read: Read, reading: &mut Reading<'_>) -> Vec<Part> {
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

/// What is said to providers about a part or a message, under its names of several versions.
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
    /// The same with the options of a result, and whether that is a value.
    fn of_result(self, options: Option<Value>, is_json: bool) -> Self {
        let mut own = Map::new();
        if let Some(options) = options {
            own.insert("providerOptions".to_owned(), options);
        }
        if is_json {
            own.insert("json".to_owned(), Value::Bool(true));
        }
        self.attached(KIND, own)
    }

    /// The same with its options: as they came, and what contextd's own providers look at.
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

/// The options in the words of contextd's own providers.
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

fn text(part: &Object<'_>, reading: &mut Reading<'_>) -> Option<Part> {
    let text = part.word("text", reading);
    let own = options(part);
    let kept = !text.is_empty()
        || own
            .as_ref()
            .is_some_and(|own| !own_metadata(own).is_empty());
    kept.then(|| Part::new(part.at(), Content::Text(text)).with(&own))
}

fn text_only(part: &Object<'_>, kind: &str, reading: &mut Reading<'_>) -> Option<Part> {
    match kind {
        "text" => text(part, reading),
        _ => {
            reading.unknown_type(part, "text");
            None
        }
    }
}

fn said(part: &Object<'_>, kind: &str, reading: &mut Reading<'_>) -> Option<Part> {
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

/// A picture or a file as a part.
fn medium(part: &Object<'_>, name: &str, usual: &str, reading: &mut Reading<'_>) -> Option<Part> {
    let media = content(part, name, usual, reading)?;
    Some(Part::new(part.at(), Content::Media(media)).with(&options(part)))
}

/// Content in base64, as a `data:` address or at another one.
fn content(
    part: &Object<'_>,
    name: &str,
    usual: &str,
    reading: &mut Reading<'_>,
) -> Option<ForeignMedia> {
    let Some(node) = part.get(name) else {
        reading.note(part.path(name), FlawKind::Missing, "must be set");
        return None;
    };
    let said = said_type(part, reading);
    let usual = usual_type(&said).unwrap_or(usual);
    let media_type = whole_type(said);
    let filename = part.word("filename", reading);
    if node.is_object() {
        return tagged(&node, (media_type, filename), usual, reading);
    }
    if !node.is_text() {
        let why = "must be content in base64, an address or, from version 7 on, an object";
        reading.note(node.at().to_owned(), FlawKind::Malformed, why);
        return None;
    }
    text_or_address(&node, (media_type, filename), usual, reading)
}

/// What an object holds that says what it is: content in base64, an address or a text.
fn tagged(
    node: &Node<'_>,
    (media_type, filename): (String, String),
    usual: &str,
    reading: &mut Reading<'_>,
) -> Option<ForeignMedia> {
    let data = node.object(reading)?;
    let kind = data.get("type").filter(Node::is_text);
    let kind = kind.map(|kind| kind.text(reading)).unwrap_or_default();
    let name = match kind.as_str() {
        "data" | "url" | "text" => kind.as_str(),
        _ => {
            let known = "data, url or text: content that only the service has cannot be taken";
            reading.unknown_type(&data, known);
            return None;
        }
    };
    let Some(inner) = data.get(name).filter(Node::is_text) else {
        reading.note(
            data.path(name),
            FlawKind::Missing,
            "must be set, as a string",
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

/// A string: content in base64, as a `data:` address or at another one.
fn text_or_address(
    node: &Node<'_>,
    (media_type, filename): (String, String),
    usual: &str,
    reading: &mut Reading<'_>,
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
    reading: &mut Reading<'_>,
) -> Option<ForeignMedia> {
    let data = encoded(node, reading)?;
    let media_type = if media_type.is_empty() {
        usual.to_owned()
    } else {
        media_type
    };
    Some(inline(media_type, filename, data))
}

/// The type as it is written.
fn said_type(part: &Object<'_>, reading: &mut Reading<'_>) -> String {
    let said = part.word("mediaType", reading);
    if said.is_empty() {
        part.word("mimeType", reading)
    } else {
        said
    }
}

/// A whole type; empty where `image/*` or `image` says that it is not known.
fn whole_type(said: String) -> String {
    if said.ends_with("/*") || !said.contains('/') {
        return String::new();
    }
    said
}

/// What content is of which only such a beginning of its type is said.
fn usual_type(said: &str) -> Option<&'static str> {
    match said.trim_end_matches("/*") {
        "image" => Some(PICTURE),
        "audio" => Some("audio/mpeg"),
        "video" => Some("video/mp4"),
        "text" => Some(TEXT),
        _ => None,
    }
}

/// A part of what the model said.
fn answered(part: &Object<'_>, kind: &str, reading: &mut Reading<'_>) -> Option<Part> {
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
        // What a model shows as its reasoning, and parts of the provider's own.
        "reasoning-file" | "custom" => Some(kept(part, kind, reading)),
        "tool-call" if part.is_true("providerExecuted") => Some(kept(part, kind, reading)),
        "tool-result" => Some(kept(part, kind, reading)),
        "tool-call" => Some(call(part, reading)),
        // How the call ended is in its result.
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

fn reasoning(part: &Object<'_>, reading: &mut Reading<'_>) -> Option<Part> {
    let text = part.word("text", reading);
    // Version 4 had no options for it.
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

/// The pieces of one item of the Responses API each have its name. It is that of the last one: the
/// item goes back once.
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

fn call(part: &Object<'_>, reading: &mut Reading<'_>) -> Part {
    let id = part.required("toolCallId", reading);
    let name = part.required("toolName", reading);
    let input = part.get("input").or_else(|| part.get("args"));
    // A call whose arguments were broken has them as the model wrote them.
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

/// A call of a tool that the provider ran, or its result, as it came.
fn kept(part: &Object<'_>, kind: &str, reading: &mut Reading<'_>) -> Part {
    let content = Content::Item {
        kind: kind.to_owned(),
        json: part.json(),
        title: part.word("toolName", reading),
        reader: Some(READER),
    };
    Part::new(part.at(), content)
}

/// A part of a message of results. People's answers are in the results of the calls.
fn resulted(part: &Object<'_>, kind: &str, reading: &mut Reading<'_>) -> Option<Part> {
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
                given,
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

/// How a call ended.
#[derive(Debug, Default)]
struct Output {
    given: Vec<Given>,
    outcome: Outcome,
    /// Its text was a value.
    is_json: bool,
}

fn output(part: &Object<'_>, reading: &mut Reading<'_>) -> Output {
    let text = |text: String| vec![Given::Text(text)];
    let Some(output) = part.get("output") else {
        // Version 4 wrote whatever the tool gave.
        let result = part.get("result");
        let given = result.as_ref().map(|node| text(words(node, reading)));
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
            let reason = Some(output.word("reason", reading));
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

/// A text as it is, anything else as JSON.
fn words(node: &Node<'_>, reading: &mut Reading<'_>) -> String {
    if node.is_text() {
        node.text(reading)
    } else {
        node.json()
    }
}

/// A piece of what a tool gave.
fn given(piece: &Object<'_>, reading: &mut Reading<'_>) -> Option<Given> {
    let kind = piece.required("type", reading);
    let media = match kind.as_str() {
        "" => return None,
        "text" => return Some(Given::Text(piece.word("text", reading))),
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

fn address(piece: &Object<'_>, usual: &str, reading: &mut Reading<'_>) -> Option<ForeignMedia> {
    let url = piece.required("url", reading);
    let media_type = whole_type(said_type(piece, reading));
    let filename = piece.word("filename", reading);
    (!url.is_empty()).then(|| at_address(url, media_type, filename, usual))
}

/// The part of a part's metadata that came as options of the SDK. `None` means there is none.
pub(super) fn kept_options(part: &crate::model::Part) -> Option<Value> {
    authorship::attached(KIND, part)?.remove("providerOptions")
}
