//! Reads messages of Chat Completions into neutral messages.

use serde_json::Map;

use super::KIND;
use crate::{
    model::Role,
    provider::foreign::{
        FlawKind, ForeignContent as Content, ForeignOutcome as Outcome, ForeignPart as Part,
        ForeignResultPart as Given, Importer, Node, Object, decode_base64, from_data_or_url,
        inline,
    },
};

/// The media type of an image that does not state one.
const PICTURE: &str = "image/jpeg";

/// Reads all messages.
pub(in crate::provider) fn read(messages: &[Node<'_>], reading: &mut Importer<'_>) {
    // The generated id of the last `function_call`, which has none.
    let mut function = None;
    for node in messages {
        let Some(message) = node.object(reading) else {
            continue;
        };
        let role = message.required("role", reading);
        match role.as_str() {
            "system" | "developer" => {
                let parts = texts(&message, "content", reading);
                reading.add(message.at(), Role::System, parts);
            }
            "user" => {
                let parts = user_parts(&message, reading);
                reading.add(message.at(), Role::User, parts);
            }
            "assistant" => {
                let parts = answer(&message, &mut function, reading);
                reading.add(message.at(), Role::Assistant, parts);
            }
            "tool" => {
                let call = message.required("tool_call_id", reading);
                let part = result(&message, call, reading);
                reading.add(message.at(), Role::Tool, vec![part]);
            }
            "function" => {
                let Some(call) = function.take() else {
                    let why = "must follow a message with a function_call";
                    reading.note(message.path("role"), FlawKind::Malformed, why);
                    continue;
                };
                let part = result(&message, call, reading);
                reading.add(message.at(), Role::Tool, vec![part]);
            }
            other => {
                reading.unknown_role(
                    &message,
                    other,
                    "system, developer, user, assistant, tool or function",
                );
            }
        }
    }
}

/// Reads content that consists of texts only.
fn texts(message: &Object<'_>, name: &str, reading: &mut Importer<'_>) -> Vec<Part> {
    let Some(content) = message.get(name) else {
        return Vec::new();
    };
    if !content.is_array() {
        return Part::text(content.at(), content.text(reading))
            .into_iter()
            .collect();
    }
    let mut parts = Vec::new();
    for part in content.objects(reading) {
        match part.string("type", reading).as_str() {
            "text" => parts.extend(Part::text(part.at(), part.string("text", reading))),
            _ => reading.unknown_type(&part, "text"),
        }
    }
    parts
}

/// Reads the content of a user message or a tool result. Some services accept images in results.
fn user_parts(message: &Object<'_>, reading: &mut Importer<'_>) -> Vec<Part> {
    let Some(content) = message.get("content").filter(Node::is_array) else {
        return texts(message, "content", reading);
    };
    let mut parts = Vec::new();
    for part in content.objects(reading) {
        match part.string("type", reading).as_str() {
            "text" => parts.extend(Part::text(part.at(), part.string("text", reading))),
            "image_url" => parts.extend(picture(&part, reading)),
            "input_audio" => parts.extend(sound(&part, reading)),
            "file" => parts.extend(file(&part, reading)),
            _ => reading.unknown_type(&part, "text, image_url, input_audio or file"),
        }
    }
    parts
}

fn picture(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let Some(node) = part.get("image_url") else {
        reading.note(part.path("image_url"), FlawKind::Missing, "must be set");
        return None;
    };
    let address = if node.is_text() {
        node
    } else {
        let picture = node.object(reading)?;
        let Some(url) = picture.get("url") else {
            reading.note(picture.path("url"), FlawKind::Missing, "must be set");
            return None;
        };
        url
    };
    let media = from_data_or_url(&address, String::new(), String::new(), PICTURE, reading)?;
    Some(Part::new(part.at(), Content::Media(media)))
}

fn sound(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let sound = inner(part, "input_audio", reading)?;
    let format = sound.required("format", reading);
    let media_type = match format.as_str() {
        "mp3" => "audio/mpeg".to_owned(),
        format => format!("audio/{format}"),
    };
    let Some(data) = sound.get("data") else {
        reading.note(sound.path("data"), FlawKind::Missing, "must be set");
        return None;
    };
    let media = inline(media_type, String::new(), decode_base64(&data, reading)?);
    Some(Part::new(part.at(), Content::Media(media)))
}

fn file(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let file = inner(part, "file", reading)?;
    let filename = file.string("filename", reading);
    let Some(data) = file.get("file_data") else {
        let why = "must be set: references to files in the service are not supported";
        reading.note(file.path("file_data"), FlawKind::Missing, why);
        return None;
    };
    let media = from_data_or_url(&data, String::new(), filename, "application/pdf", reading)?;
    Some(Part::new(part.at(), Content::Media(media)))
}

fn inner<'a>(part: &Object<'a>, name: &str, reading: &mut Importer<'_>) -> Option<Object<'a>> {
    let Some(node) = part.get(name) else {
        reading.note(part.path(name), FlawKind::Missing, "must be set");
        return None;
    };
    node.object(reading)
}

/// Reads an assistant message: reasoning, text, refusal and tool calls.
fn answer(
    message: &Object<'_>,
    function: &mut Option<String>,
    reading: &mut Importer<'_>,
) -> Vec<Part> {
    let mut parts: Vec<Part> = reasoning(message, reading).into_iter().collect();
    match message.get("content") {
        Some(content) if content.is_array() => {
            for part in content.objects(reading) {
                match part.string("type", reading).as_str() {
                    "text" => parts.extend(Part::text(part.at(), part.string("text", reading))),
                    "refusal" => parts.extend(refusal(&part, reading)),
                    // Mistral's form of reasoning.
                    "thinking" => {
                        let texts = texts(&part, "thinking", reading);
                        parts.extend(texts.into_iter().map(thought));
                    }
                    _ => reading.unknown_type(&part, "text, refusal or thinking"),
                }
            }
        }
        Some(content) => parts.extend(Part::text(content.at(), content.text(reading))),
        None => {}
    }
    parts.extend(refusal(message, reading));
    if message.get("audio").is_some() {
        let why = "references to audio in the service are not supported";
        reading.note(message.path("audio"), FlawKind::Unsupported, why);
    }
    if let Some(calls) = message.get("tool_calls") {
        for call in calls.objects(reading) {
            parts.extend(self::call(&call, reading));
        }
    }
    if let Some(called) = message.get("function_call") {
        let id = reading.make_id();
        *function = Some(id.clone());
        let called = called.object(reading);
        parts.extend(
            called.map(|called| call_part(message.path("function_call"), id, &called, reading)),
        );
    }
    parts
}

/// Reads reasoning from the fields of DeepSeek, OpenRouter and vLLM.
fn reasoning(message: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let details = message.get("reasoning_details").filter(Node::is_array);
    let named = ["reasoning_content", "reasoning"]
        .into_iter()
        .filter_map(|name| message.get(name))
        .find(Node::is_text);
    let at = named.as_ref().or(details.as_ref())?.at().to_owned();
    let mut own = Map::new();
    let mut shown = String::new();
    if let Some(details) = &details {
        for detail in details.objects(reading) {
            shown.push_str(&detail.string("text", reading));
            shown.push_str(&detail.string("summary", reading));
        }
        own.insert("reasoning_details".to_owned(), details.value());
    }
    let text = named.map_or(shown, |node| node.text(reading));
    if text.is_empty() && own.is_empty() {
        return None;
    }
    let redacted = text.is_empty();
    Some(Part::new(&at, Content::Reasoning { text, redacted }).with_metadata(KIND, own))
}

fn thought(part: Part) -> Part {
    match part.content {
        Content::Text(text) => Part {
            content: Content::Reasoning {
                text,
                redacted: false,
            },
            ..part
        },
        Content::Reasoning { .. }
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::Call { .. }
        | Content::Result { .. }
        | Content::Item { .. } => part,
    }
}

fn refusal(object: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let words = object.string("refusal", reading);
    let at = object.path("refusal");
    (!words.is_empty()).then(|| Part::new(&at, Content::Refusal(words)))
}

fn call(call: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    if !matches!(call.string("type", reading).as_str(), "" | "function") {
        reading.unknown_type(call, "function");
        return None;
    }
    let id = call.required("id", reading);
    let function = inner(call, "function", reading)?;
    let part = call_part(call.at().to_owned(), id, &function, reading);
    let extra = call.get("extra_content").map(|extra| extra.value());
    let own = extra.map(|extra| ("extra_content".to_owned(), extra));
    Some(part.with_metadata(KIND, own.into_iter().collect()))
}

/// Creates a tool call. The arguments may be invalid JSON, as written by a model, or the object
/// itself, as written by some services.
fn call_part(at: String, id: String, function: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let arguments = match function.get("arguments") {
        Some(arguments) if arguments.is_text() => arguments.text(reading),
        Some(arguments) => arguments.json(),
        None => String::new(),
    };
    let name = function.required("name", reading);
    Part::new(
        &at,
        Content::Call {
            id,
            name,
            arguments,
        },
    )
}

fn result(message: &Object<'_>, call: String, reading: &mut Importer<'_>) -> Part {
    let given = |part: Part| match part.content {
        Content::Text(text) => Some(Given::Text(text)),
        Content::Media(media) => Some(Given::Media(media)),
        Content::Reasoning { .. }
        | Content::Refusal(_)
        | Content::Call { .. }
        | Content::Result { .. }
        | Content::Item { .. } => None,
    };
    let parts = user_parts(message, reading);
    let content = Content::Result {
        call,
        parts: parts.into_iter().filter_map(given).collect(),
        outcome: Outcome::Success,
    };
    Part::new(message.at(), content)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::PromptFormat,
        provider::foreign::{self, ForeignConversation},
    };

    fn import(messages: &Value) -> ForeignConversation {
        foreign::read(PromptFormat::OpenAiChat, &messages.to_string(), "made_")
    }

    #[test]
    fn an_answer_is_read_in_the_order_in_which_models_write() {
        let messages = json!([
            {"role": "user", "content": "Look.", "name": "ann"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}],
             "reasoning_details": [{"type": "reasoning.text", "text": "Let me."}],
             "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"},
                             "extra_content": {"google": {"thought_signature": "s"}}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "A cat."}]},
            {"role": "assistant", "content": "", "tool_calls": null},
            {"role": "assistant", "content": null, "refusal": "No."},
        ]);
        let ForeignConversation { messages, flaws } = import(&messages);
        assert_eq!(flaws, []);
        assert_eq!(messages.len(), 4, "an empty answer is left out");
        assert_eq!(
            messages[3].parts[0].content,
            Content::Refusal("No.".to_owned())
        );
        let [thought, text, call] = messages[1].parts.as_slice() else {
            panic!("{messages:?}")
        };
        let details = json!([{"type": "reasoning.text", "text": "Let me."}]);
        assert_eq!(
            thought.metadata,
            Some(json!({"openai": {"reasoning_details": details}}).to_string())
        );
        assert_eq!(text.content, Content::Text("I look.".to_owned()));
        assert_eq!(text.at, "[1].content[0]");
        assert!(
            matches!(&call.content, Content::Call { arguments, .. } if arguments == "{\"a\":1}")
        );
        assert!(
            matches!(&messages[2].parts[0].content, Content::Result { call, .. } if call == "c1")
        );
    }

    #[test]
    fn a_function_call_and_its_result_get_an_id() {
        let messages = json!([
            {"role": "assistant", "content": null, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "A cat."},
        ]);
        let ForeignConversation { messages, flaws } = import(&messages);
        assert_eq!(flaws, []);
        assert!(
            matches!(&messages[0].parts[0].content, Content::Call { id, .. } if id == "made_1")
        );
        assert!(
            matches!(&messages[1].parts[0].content, Content::Result { call, .. } if call == "made_1")
        );
    }
}
