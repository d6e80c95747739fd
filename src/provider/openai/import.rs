//! Converts messages of the Chat Completions API to provider-neutral messages.

use serde_json::Map;

use super::KIND;
use crate::{
    model::{Role, ToolOutcome},
    provider::foreign::{
        FlawKind, ForeignContent as Content, ForeignMedia, ForeignPart as Part, Importer, Node, Object, PDF, PICTURE,
        decode_base64, from_data_or_url, inline,
    },
};

/// Reads all messages.
pub(crate) fn read(messages: &[Node<'_>], reading: &mut Importer<'_>) {
    // The generated id of the last `function_call`: the API gives it no id.
    let mut function = None;
    for node in messages {
        let Some(message) = node.object(reading) else {
            continue;
        };
        let role = message.required("role", reading);
        match role.as_str() {
            "system" | "developer" => {
                let parts = message.parts("content", text_only, reading);
                reading.add(&message.at, Role::System, parts);
            }
            "user" => {
                let parts = message.parts("content", user_part, reading);
                reading.add(&message.at, Role::User, parts);
            }
            "assistant" => {
                let parts = answer(&message, &mut function, reading);
                reading.add(&message.at, Role::Assistant, parts);
            }
            "tool" => {
                let call = message.required("tool_call_id", reading);
                let part = result(&message, call, reading);
                reading.add(&message.at, Role::Tool, vec![part]);
            }
            "function" => {
                let Some(call) = function.take() else {
                    let why = "must follow a message with a function_call";
                    reading.note(message.path("role"), FlawKind::Malformed, why);
                    continue;
                };
                let part = result(&message, call, reading);
                reading.add(&message.at, Role::Tool, vec![part]);
            }
            other => {
                reading.unknown_role(&message, other, "system, developer, user, assistant, tool or function");
            }
        }
    }
}

fn text_only(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    match part.string("type", reading).as_str() {
        "text" => part.text_part(reading),
        _ => reading.unknown_type(part, "text"),
    }
}

/// Reads a part of a user message or a tool result. Some services accept images in results.
fn user_part(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let media = match part.string("type", reading).as_str() {
        "text" => return part.text_part(reading),
        "image_url" => picture(part, reading),
        "input_audio" => sound(part, reading),
        "file" => file(part, reading),
        _ => reading.unknown_type(part, "text, image_url, input_audio or file"),
    };
    media.map(|media| Part::media(&part.at, media))
}

fn picture(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let mut address = part.node("image_url", reading)?;
    if !address.is_text() {
        address = address.object(reading)?.node("url", reading)?;
    }
    from_data_or_url(&address, String::new(), String::new(), PICTURE, reading)
}

fn sound(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let sound = part.object("input_audio", reading)?;
    let format = sound.required("format", reading);
    let media_type = match format.as_str() {
        "mp3" => "audio/mpeg".to_owned(),
        format => format!("audio/{format}"),
    };
    let data = decode_base64(&sound.node("data", reading)?, reading)?;
    Some(inline(media_type, String::new(), data))
}

fn file(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let file = part.object("file", reading)?;
    let filename = file.string("filename", reading);
    let Some(data) = file.get("file_data") else {
        let why = "must be set: references to files in the service are not supported";
        return reading.missing(&file, "file_data", why);
    };
    from_data_or_url(&data, String::new(), filename, PDF, reading)
}

/// Reads an assistant message: reasoning, text, refusal and tool calls.
fn answer(message: &Object<'_>, function: &mut Option<String>, reading: &mut Importer<'_>) -> Vec<Part> {
    let mut parts: Vec<Part> = reasoning(message, reading).into_iter().collect();
    match message.get("content") {
        Some(content) if content.is_array() => {
            for part in content.objects(reading) {
                match part.string("type", reading).as_str() {
                    "text" => parts.extend(part.text_part(reading)),
                    "refusal" => parts.extend(refusal(&part, reading)),
                    // Mistral's form of reasoning.
                    "thinking" => {
                        let texts = part.parts("thinking", text_only, reading);
                        parts.extend(texts.into_iter().map(thought));
                    }
                    _ => parts.extend(reading.unknown_type(&part, "text, refusal or thinking")),
                }
            }
        }
        Some(content) => parts.extend(Part::text(&content.at, content.text(reading))),
        None => {}
    }
    parts.extend(refusal(message, reading));
    if message.get("audio").is_some() {
        let why = "references to audio in the service are not supported";
        reading.note(message.path("audio"), FlawKind::Unsupported, why);
    }
    for call in message.objects("tool_calls", reading) {
        parts.extend(self::call(&call, reading));
    }
    if let Some(called) = message.get("function_call") {
        let id = reading.make_id();
        *function = Some(id.clone());
        let called = called.object(reading);
        parts.extend(called.map(|called| call_part(&called.at, id, &called, reading)));
    }
    parts
}

/// Reads reasoning from the fields of DeepSeek, OpenRouter and vLLM.
fn reasoning(message: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let details = message.get("reasoning_details").filter(Node::is_array);
    let named = ["reasoning_content", "reasoning"].into_iter();
    let named = named.filter_map(|name| message.get(name)).find(Node::is_text);
    let at = named.as_ref().or(details.as_ref())?.at.clone();
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
    Some(Part::reasoning(&at, text).with_metadata(KIND, own))
}

fn thought(part: Part) -> Part {
    if let Content::Text(text) = part.content { Part::reasoning(&part.at, text) } else { part }
}

fn refusal(object: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let words = object.string("refusal", reading);
    let at = object.path("refusal");
    (!words.is_empty()).then(|| Part::new(&at, Content::Refusal(words)))
}

fn call(call: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    if !matches!(call.string("type", reading).as_str(), "" | "function") {
        return reading.unknown_type(call, "function");
    }
    let id = call.required("id", reading);
    let function = call.object("function", reading)?;
    let part = call_part(&call.at, id, &function, reading);
    let extra = call.get("extra_content").map(|extra| extra.value());
    let own = extra.map(|extra| ("extra_content".to_owned(), extra));
    Some(part.with_metadata(KIND, own.into_iter().collect()))
}

/// Creates a tool call. The arguments are normally a string of JSON, which may be invalid because a model wrote it.
/// Some services write a JSON object instead of a string.
fn call_part(at: &str, id: String, function: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let arguments = function.text_or_json("arguments", reading);
    Part::call(at, id, function.required("name", reading), arguments)
}

fn result(message: &Object<'_>, call: String, reading: &mut Importer<'_>) -> Part {
    let given = message.parts("content", user_part, reading);
    Part::result(&message.at, call, given, ToolOutcome::Success)
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
        assert_eq!(messages[3].parts[0].content, Content::Refusal("No.".to_owned()));
        let [thought, text, call] = messages[1].parts.as_slice() else { panic!("{messages:?}") };
        let details = json!([{"type": "reasoning.text", "text": "Let me."}]);
        assert_eq!(thought.metadata, Some(json!({"openai": {"reasoning_details": details}}).to_string()));
        assert_eq!(text.content, Content::Text("I look.".to_owned()));
        assert_eq!(text.at, "[1].content[0]");
        assert!(matches!(&call.content, Content::Call { arguments, .. } if arguments == "{\"a\":1}"));
        assert!(matches!(&messages[2].parts[0].content, Content::Result { call, .. } if call == "c1"));
    }

    #[test]
    fn a_function_call_and_its_result_get_an_id() {
        let messages = json!([
            {"role": "assistant", "content": null, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "A cat."},
        ]);
        let ForeignConversation { messages, flaws } = import(&messages);
        assert_eq!(flaws, []);
        assert!(matches!(&messages[0].parts[0].content, Content::Call { id, .. } if id == "made_1"));
        assert!(matches!(&messages[1].parts[0].content, Content::Result { call, .. } if call == "made_1"));
    }
}
