//! Converts messages of Anthropic's Messages API to provider-neutral messages.

use serde_json::{Map, Value};

use super::{
    KIND,
    block::{source, title},
};
use crate::{
    model::Role,
    provider::{
        authorship,
        foreign::{
            ForeignContent as Content, ForeignMedia, ForeignPart as Part, Importer, Node, Object, PDF, PICTURE, at_url,
            decode_base64, inline, or, outcome,
        },
        http::lenient,
    },
};

pub(crate) fn read(messages: &[Node<'_>], reading: &mut Importer<'_>) {
    for node in messages {
        let Some(message) = node.object(reading) else {
            continue;
        };
        let role = message.required("role", reading);
        match role.as_str() {
            "user" => user(&message, reading),
            "assistant" => {
                let parts = blocks(&message, "content", reading, answered);
                reading.add(&message.at, Role::Assistant, parts);
            }
            "system" => {
                let parts = blocks(&message, "content", reading, text_only);
                reading.add(&message.at, Role::System, parts);
            }
            other => reading.unknown_role(&message, other, "user, assistant or system"),
        }
    }
}

/// Reads a user message. Tool results become a separate message before it; the service requires
/// them first.
fn user(message: &Object<'_>, reading: &mut Importer<'_>) {
    let parts = blocks(message, "content", reading, user_part);
    let is_result = |part: &Part| matches!(part.content, Content::Result { .. });
    let (results, words): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_result);
    reading.add(&message.at, Role::Tool, results);
    reading.add(&message.at, Role::User, words);
}

/// Reads a block of a given type.
type Read = fn(&Object<'_>, &str, &mut Importer<'_>) -> Option<Part>;

/// Reads the blocks of a content field, which may be one text.
fn blocks(object: &Object<'_>, name: &str, reading: &mut Importer<'_>, read: Read) -> Vec<Part> {
    let typed = |block: &Object<'_>, reading: &mut Importer<'_>| {
        let kind = block.required("type", reading);
        (!kind.is_empty()).then(|| read(block, &kind, reading)).flatten()
    };
    object.parts(name, typed, reading)
}

fn text_only(block: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => block.text_part(reading),
        _ => reading.unknown_type(block, "text"),
    }
}

fn user_part(block: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => block.text_part(reading),
        "image" | "document" => {
            let media = medium(block, kind, reading);
            media.map(|media| Part::media(&block.at, media))
        }
        "tool_result" => Some(result(block, reading)),
        _ => reading.unknown_type(block, "text, image, document or tool_result"),
    }
}

fn result(block: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let call = block.required("tool_use_id", reading);
    let given = blocks(block, "content", reading, given_by_tool);
    Part::result(&block.at, call, given, outcome(block.is_true("is_error")))
}

fn given_by_tool(block: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" | "image" | "document" => user_part(block, kind, reading),
        _ => reading.unknown_type(block, "text, image or document"),
    }
}

/// Reads an image or a file.
fn medium(block: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let title = block.string("title", reading);
    let source = block.object("source", reading)?;
    let usual = if kind == "image" { PICTURE } else { PDF };
    let media_type = source.string("media_type", reading);
    match source.string("type", reading).as_str() {
        "base64" => {
            let data = decode_base64(&source.node("data", reading)?, reading)?;
            Some(inline(or(media_type, usual), title, data))
        }
        "text" => {
            let text = source.node("data", reading)?.text(reading);
            let media_type = or(media_type, "text/plain");
            Some(inline(media_type, title, text.into_bytes()))
        }
        "url" => {
            let url = source.required("url", reading);
            Some(at_url(url, media_type, title, usual))
        }
        _ => {
            let known = "base64, text or url (references to content in the service are not supported)";
            reading.unknown_type(&source, known)
        }
    }
}

/// Reads a block of an assistant message.
fn answered(block: &Object<'_>, kind: &str, reading: &mut Importer<'_>) -> Option<Part> {
    match kind {
        "text" => {
            let part = block.text_part(reading)?;
            let cited = block.elements("citations", reading);
            Some(Part { citations: cited.iter().map(|cited| source(cited.raw)).collect(), ..part })
        }
        "thinking" => {
            let text = block.string("thinking", reading);
            let signature = block.string("signature", reading);
            let is_empty = text.is_empty() && signature.is_empty();
            let own = word("signature", signature);
            (!is_empty).then(|| Part::reasoning(&block.at, text).with_metadata(KIND, own))
        }
        "redacted_thinking" => {
            let own = word("redacted_thinking", block.required("data", reading));
            Some(Part::reasoning(&block.at, String::new()).with_metadata(KIND, own))
        }
        "tool_use" => Some(call(block, reading)),
        kind if is_item(kind) => Some(item(block, kind)),
        _ => {
            let known = "text, thinking, redacted_thinking, tool_use or a type of the service itself";
            reading.unknown_type(block, known)
        }
    }
}

fn call(block: &Object<'_>, reading: &mut Importer<'_>) -> Part {
    let id = block.required("id", reading);
    let name = block.required("name", reading);
    let arguments = block.get("input").map(|input| input.raw.get().to_owned());
    let own = block.get("caller").map(|caller| ("caller".to_owned(), caller.value()));
    let call = Part::call(&block.at, id, name, arguments.unwrap_or_default());
    call.with_metadata(KIND, own.into_iter().collect())
}

/// Whether a block type belongs to a server tool, or to an operation of the service on the
/// conversation.
pub(super) fn is_item(kind: &str) -> bool {
    kind.ends_with("_tool_use")
        || kind.ends_with("_tool_result")
        || matches!(kind, "compaction" | "container_upload" | "fallback")
}

fn item(block: &Object<'_>, kind: &str) -> Part {
    let members = lenient::members(block.raw.get());
    let name = members.get("name").map(|raw| lenient::string(raw));
    let name = name.unwrap_or_else(|| kind.to_owned());
    let title = title(&name, members.get("input").map(AsRef::as_ref));
    let item = authorship::item(kind, block.json(), &title);
    Part::item(&block.at, item, None)
}

fn word(name: &str, word: String) -> Map<String, Value> {
    let entry = (!word.is_empty()).then(|| (name.to_owned(), Value::String(word)));
    entry.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{PromptFormat, ToolOutcome},
        provider::foreign::{self, ForeignConversation},
    };

    #[test]
    fn results_and_words_of_one_message_become_two() {
        let messages = json!([
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Let me.", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1.50}},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
            ]},
            {"role": "user", "content": [
                {"type": "text", "text": "Well?"},
                {"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": "No."},
            ]},
        ]);
        let ForeignConversation { messages, flaws } =
            foreign::read(PromptFormat::Anthropic, &messages.to_string(), "made_");
        assert_eq!(flaws, []);
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool, Role::User]);
        let [thinking, call, item] = messages[0].parts.as_slice() else { panic!("{messages:?}") };
        assert_eq!(thinking.metadata.as_deref(), Some(r#"{"anthropic":{"signature":"s"}}"#));
        assert!(matches!(&call.content, Content::Call { arguments, .. } if arguments == r#"{"a":1.5}"#));
        assert!(matches!(&item.content, Content::Item { title, .. } if title == "web_search: tea"));
        assert!(matches!(&messages[1].parts[0].content, Content::Result { outcome: ToolOutcome::Error, .. }));
    }
}
