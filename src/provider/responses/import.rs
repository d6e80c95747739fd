//! Converts items of the Responses API to provider-neutral messages. The items of one response become one message.

use serde_json::{Map, Value, json};

use super::{KIND, citation::citation, hosted};
use crate::{
    model::{Role, ToolOutcome},
    provider::foreign::{
        FlawKind, ForeignContent as Content, ForeignMedia, ForeignPart as Part, Importer, Node, Object, PDF, PICTURE,
        at_url, from_data_or_url,
    },
};

/// The response whose items are being read.
#[derive(Debug, Default)]
struct PendingResponse {
    /// Path of its first item.
    at: String,
    parts: Vec<Part>,
    /// Reasoning was read that cannot be sent back. The service links later items to it by id, so
    /// their ids are dropped too.
    forgets_reasoning: bool,
}

/// Reads all items.
pub(crate) fn read(items: &[Node<'_>], reading: &mut Importer<'_>) {
    let mut answer = PendingResponse::default();
    for node in items {
        let Some(item) = node.object(reading) else {
            continue;
        };
        let kind = item.string("type", reading);
        let role = item.get("role").map(|role| role.text(reading));
        let kind = match (kind.as_str(), &role) {
            ("", Some(_)) => "message",
            (kind, _) => kind,
        };
        let role = role.unwrap_or_default();
        match (kind, role.as_str()) {
            ("message", "assistant") => answer.message(&item, reading),
            ("message", "user") => {
                answer.finish(reading);
                let parts = item.parts("content", input_part, reading);
                reading.add(&item.at, Role::User, parts);
            }
            ("message", "system" | "developer") => {
                answer.finish(reading);
                let parts = item.parts("content", input_part, reading);
                reading.add(&item.at, Role::System, parts);
            }
            ("message", "") => reading.note(item.path("role"), FlawKind::Missing, "must be set"),
            ("message", other) => {
                reading.unknown_role(&item, other, "user, assistant, system or developer");
            }
            ("function_call_output" | "custom_tool_call_output", _) => {
                answer.finish(reading);
                let part = result(&item, reading);
                reading.add(&item.at, Role::Tool, vec![part]);
            }
            ("reasoning", _) => answer.reasoning(&item, reading),
            ("function_call", _) => answer.call(&item, reading),
            ("custom_tool_call", _) => answer.custom_call(&item, reading),
            ("", _) => reading.note(item.path("type"), FlawKind::Missing, "must be set"),
            ("item_reference", _) => {
                let why = "references to items in the service are not supported: send the whole item";
                reading.note(item.path("type"), FlawKind::Unsupported, why);
            }
            (kind, _) if is_hosted(kind) => answer.hosted(&item, kind),
            _ => {
                let known = "message, reasoning, function_call, function_call_output, \
                             custom_tool_call, custom_tool_call_output or a type of the service itself";
                reading.unknown_type::<()>(&item, known);
            }
        }
    }
    answer.finish(reading);
}

/// Whether an item type belongs to a server tool, or to an operation of the service on the
/// conversation.
pub(super) fn is_hosted(kind: &str) -> bool {
    kind.ends_with("_call")
        || kind.ends_with("_call_output")
        || kind.starts_with("mcp_")
        || matches!(kind, "compaction" | "program" | "program_output")
}

impl PendingResponse {
    fn finish(&mut self, reading: &mut Importer<'_>) {
        let Self { at, parts, .. } = std::mem::take(self);
        reading.add(&at, Role::Assistant, parts);
    }

    fn begin(&mut self, item: &Object<'_>) {
        if self.parts.is_empty() {
            item.at.clone_into(&mut self.at);
        }
    }

    /// The id and phase of an item.
    fn names(&self, item: &Object<'_>, reading: &mut Importer<'_>) -> Map<String, Value> {
        let mut own = Map::new();
        for name in ["id", "phase"] {
            let word = item.string(name, reading);
            let is_forgotten = name == "id" && self.forgets_reasoning;
            if !word.is_empty() && !is_forgotten {
                own.insert(name.to_owned(), Value::String(word));
            }
        }
        own
    }

    /// Reads a message item. Two consecutive messages without ids are two responses, unless the
    /// response has calls without results.
    fn message(&mut self, item: &Object<'_>, reading: &mut Importer<'_>) {
        let own = self.names(item, reading);
        let words = |part: &Part| matches!(part.content, Content::Text(_) | Content::Refusal(_));
        let calls = |part: &Part| matches!(part.content, Content::Call { .. });
        if own.get("id").is_none() && self.parts.last().is_some_and(words) && !self.parts.iter().any(calls) {
            self.finish(reading);
        }
        self.begin(item);
        let parts = item.parts("content", answered, reading).into_iter();
        self.parts.extend(parts.map(|part| part.with_metadata(KIND, own.clone())));
    }

    /// Reads a reasoning item: one part per visible text; the encrypted content belongs to the
    /// last.
    fn reasoning(&mut self, item: &Object<'_>, reading: &mut Importer<'_>) {
        self.begin(item);
        let encrypted = item.string("encrypted_content", reading);
        let mut own = self.names(item, reading);
        own.remove("phase");
        let mut shown = Vec::new();
        for (name, is_raw) in [("summary", false), ("content", true)] {
            for piece in item.objects(name, reading) {
                let text = piece.string("text", reading);
                if !text.is_empty() {
                    shown.push(Part::reasoning(&piece.at, text));
                    if is_raw {
                        own.insert("raw".to_owned(), Value::Bool(true));
                    }
                }
            }
        }
        if encrypted.is_empty() {
            self.forgets_reasoning = true;
        } else {
            own.insert("encrypted_content".to_owned(), Value::String(encrypted));
            let last = shown.pop();
            let last = last.unwrap_or_else(|| Part::reasoning(&item.at, String::new()));
            shown.push(last.with_metadata(KIND, own));
        }
        self.parts.extend(shown);
    }

    fn call(&mut self, item: &Object<'_>, reading: &mut Importer<'_>) {
        self.begin(item);
        let arguments = item.text_or_json("arguments", reading);
        let mut own = self.names(item, reading);
        let caller = item.get("caller").map(|caller| caller.value());
        own.extend(caller.map(|caller| ("caller".to_owned(), caller)));
        let id = item.required("call_id", reading);
        let call = Part::call(&item.at, id, item.required("name", reading), arguments);
        self.parts.push(call.with_metadata(KIND, own));
    }

    /// Reads a custom tool call. Its text input becomes the `input` argument.
    fn custom_call(&mut self, item: &Object<'_>, reading: &mut Importer<'_>) {
        self.begin(item);
        let mut own = self.names(item, reading);
        own.insert("type".to_owned(), json!("custom_tool_call"));
        let id = item.required("call_id", reading);
        let name = item.required("name", reading);
        let arguments = json!({"input": item.string("input", reading)}).to_string();
        self.parts.push(Part::call(&item.at, id, name, arguments).with_metadata(KIND, own));
    }

    fn hosted(&mut self, item: &Object<'_>, kind: &str) {
        self.begin(item);
        let read = hosted::item(kind, item.raw);
        self.parts.push(Part::item(&item.at, read, None));
    }
}

/// Reads a content that the model wrote.
fn answered(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    match piece.string("type", reading).as_str() {
        "output_text" | "input_text" | "text" => written(piece, reading),
        "refusal" => {
            let words = piece.string("refusal", reading);
            (!words.is_empty()).then(|| Part::new(&piece.at, Content::Refusal(words)))
        }
        _ => reading.unknown_type(piece, "output_text or refusal"),
    }
}

/// Reads a text that the model wrote, with its citations.
fn written(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let text = piece.string("text", reading);
    let sources = piece.elements("annotations", reading);
    let citations = sources.iter().map(|it| citation(it.raw, &text, 0));
    Some(Part { citations: citations.collect(), ..Part::text(&piece.at, text)? })
}

/// Reads a content of a user message, a system message or a tool result.
fn input_part(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<Part> {
    let media = match piece.string("type", reading).as_str() {
        "input_text" | "output_text" | "text" => return piece.text_part(reading),
        "input_image" => picture(piece, reading),
        "input_file" => file(piece, reading),
        _ => reading.unknown_type(piece, "input_text, input_image or input_file"),
    };
    media.map(|media| Part::media(&piece.at, media))
}

fn picture(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let Some(address) = piece.get("image_url") else {
        let why = "must be set: references to images in the service are not supported";
        return reading.missing(piece, "image_url", why);
    };
    from_data_or_url(&address, String::new(), String::new(), PICTURE, reading)
}

fn file(piece: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let filename = piece.string("filename", reading);
    if let Some(data) = piece.get("file_data") {
        return from_data_or_url(&data, String::new(), filename, PDF, reading);
    }
    let Some(url) = piece.get("file_url") else {
        let why = "must be set: references to files in the service are not supported";
        return reading.missing(piece, "file_data", why);
    };
    let url = url.text(reading);
    Some(at_url(url, String::new(), filename, PDF))
}

fn result(item: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let call = item.required("call_id", reading);
    let given = item.parts("output", input_part, reading);
    Part::result(&item.at, call, given, ToolOutcome::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::PromptFormat,
        provider::foreign::{self, ForeignConversation},
    };

    fn import(items: &Value) -> ForeignConversation {
        foreign::read(PromptFormat::OpenAiResponses, &items.to_string(), "made_")
    }

    #[test]
    fn the_items_of_an_answer_become_one_message() {
        let items = json!([
            {"role": "user", "content": "Look."},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A"},
             {"type": "summary_text", "text": "B"}], "encrypted_content": "x"},
            {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "A cat."},
            {"role": "assistant", "content": "One."},
            {"role": "assistant", "content": "Two."},
        ]);
        let ForeignConversation { messages, flaws } = import(&items);
        assert_eq!(flaws, []);
        let parts: Vec<usize> = messages.iter().map(|message| message.parts.len()).collect();
        assert_eq!(parts, [1, 4, 1, 1, 1]);
        assert_eq!(messages[1].parts[0].metadata, None);
        assert_eq!(
            messages[1].parts[1].metadata.as_deref(),
            Some(r#"{"openai-responses":{"encrypted_content":"x","id":"rs_1"}}"#)
        );
    }

    #[test]
    fn ids_after_reasoning_that_cannot_go_back_are_not_kept() {
        let items = json!([
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
        ]);
        let ForeignConversation { messages, .. } = import(&items);
        assert_eq!(messages[0].parts.len(), 1);
        assert_eq!(messages[0].parts[0].metadata, None);
    }
}
