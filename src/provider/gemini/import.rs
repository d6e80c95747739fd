//! Converts contents of Gemini's generateContent to provider-neutral messages. Field names may be written as in JSON
//! (`functionCall`) or as in the Python clients (`function_call`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{KIND, items, names};
use crate::{
    model::{Role, ToolOutcome},
    provider::foreign::{
        self, FlawKind, ForeignContent as Content, ForeignMedia, ForeignPart as Part, Importer, Node, Object, PDF,
        at_url, decode_base64, inline,
    },
};

/// Kinds of parts in model contents that only the service can read.
const ITEMS: [&str; 6] =
    ["executableCode", "codeExecutionResult", "inlineData", "fileData", "toolCall", "toolResponse"];

/// Whether parts of this kind can be read only by the service.
pub(super) fn is_item(kind: &str) -> bool {
    ITEMS.contains(&kind)
}

/// Field names of a tool response.
const OUTPUT: &str = "output";
const ERROR: &str = "error";

/// Calls without a result yet, in order, indexed by name and by id.
#[derive(Debug, Default)]
struct Calls {
    next: usize,
    open: BTreeMap<usize, OpenCall>,
    by_name: BTreeMap<String, BTreeSet<usize>>,
    by_id: BTreeMap<String, BTreeSet<usize>>,
}

#[derive(Debug)]
struct OpenCall {
    name: String,
    id: String,
}

impl Calls {
    fn add(&mut self, open: OpenCall) {
        let number = self.next;
        self.next += 1;
        let by_name = self.by_name.entry(open.name.clone()).or_default();
        by_name.insert(number);
        let by_id = self.by_id.entry(open.id.clone()).or_default();
        by_id.insert(number);
        self.open.insert(number, open);
    }

    /// Removes and returns the first call with this id, or with this name if `id` is empty.
    fn take(&mut self, name: &str, id: &str) -> Option<OpenCall> {
        let named = if id.is_empty() { self.by_name.get(name) } else { self.by_id.get(id) };
        let number = *named?.first()?;
        let open = self.open.remove(&number)?;
        let by_name = self.by_name.get_mut(&open.name);
        let by_id = self.by_id.get_mut(&open.id);
        for numbers in by_name.into_iter().chain(by_id) {
            numbers.remove(&number);
        }
        Some(open)
    }
}

/// Reads all contents.
pub(crate) fn read(contents: &[Node<'_>], reading: &mut Importer<'_>) {
    let mut calls = Calls::default();
    for node in contents {
        let Some(content) = node.object(reading) else {
            continue;
        };
        let role = content.string("role", reading);
        match role.as_str() {
            // A content without a role is a user content.
            "" | "user" | "function" | "tool" => user(&content, &mut calls, reading),
            "model" => {
                calls = Calls::default();
                let parts = content.objects("parts", reading).into_iter();
                let parts = parts.filter_map(|part| answered(&part, &mut calls, reading));
                let parts = parts.collect();
                reading.add(&content.at, Role::Assistant, parts);
            }
            "system" => {
                let why = "must not be system: instructions belong in Session.system_prompt";
                reading.note(content.path("role"), FlawKind::Unsupported, why);
            }
            other => reading.unknown_role(&content, other, "user or model"),
        }
    }
}

/// A member under either of its names.
fn member<'a>(object: &Object<'a>, name: &str) -> Option<Node<'a>> {
    object.get(name).or_else(|| object.get(&snake(name)))
}

fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

/// Reads a user content. Tool results become a separate message before it; the service requires
/// them first.
fn user(content: &Object<'_>, calls: &mut Calls, reading: &mut Importer<'_>) {
    let mut results = Vec::new();
    let mut words = Vec::new();
    for part in content.objects("parts", reading) {
        if let Some(response) = member(&part, "functionResponse") {
            let response = response.object(reading);
            results.extend(response.map(|response| result(&part, &response, calls, reading)));
        } else if let Some(text) = part.get("text") {
            words.extend(Part::text(&part.at, text.text(reading)));
        } else {
            words.extend(medium(&part, reading).map(|media| Part::media(&part.at, media)));
        }
    }
    reading.add(&content.at, Role::Tool, results);
    reading.add(&content.at, Role::User, words);
}

fn medium(part: &Object<'_>, reading: &mut Importer<'_>) -> Option<ForeignMedia> {
    let (node, is_inline) = match (member(part, "inlineData"), member(part, "fileData")) {
        (Some(node), _) => (node, true),
        (None, Some(node)) => (node, false),
        (None, None) => {
            let why = "must have text, inlineData, fileData or functionResponse";
            reading.note(part.at.clone(), FlawKind::Unsupported, why);
            return None;
        }
    };
    let source = node.object(reading)?;
    let word = |name: &str, reading: &mut Importer<'_>| {
        let node = member(&source, name);
        node.map(|node| node.text(reading)).unwrap_or_default()
    };
    let media_type = word("mimeType", reading);
    let filename = word("displayName", reading);
    if !is_inline {
        let url = word("fileUri", reading);
        return Some(at_url(url, media_type, filename, PDF));
    }
    let data = decode_base64(&source.node("data", reading)?, reading)?;
    Some(inline(media_type, filename, data))
}

/// Reads a tool result. One without an id belongs to the first open call of that tool.
fn result(part: &Object<'_>, response: &Object<'_>, calls: &mut Calls, reading: &mut Importer<'_>) -> Part {
    let name = names::unescape(response.required("name", reading));
    let id = response.string("id", reading);
    let call = match calls.take(&name, &id) {
        Some(open) => open.id,
        None if id.is_empty() => {
            let why = "must follow a call of this tool without a result; the result of a call that \
                       was appended earlier must have its id";
            reading.note(response.path("name"), FlawKind::Malformed, why);
            String::new()
        }
        None => id,
    };
    let (text, outcome) = outcome(response, reading);
    let mut given: Vec<Part> = Part::text(&part.at, text).into_iter().collect();
    for inner in response.objects("parts", reading) {
        given.extend(match inner.get("text") {
            Some(text) => Some(Part::new(&inner.at, Content::Text(text.text(reading)))),
            None => medium(&inner, reading).map(|media| Part::media(&inner.at, media)),
        });
    }
    Part::result(&part.at, call, given, outcome)
}

/// The text and the outcome of a tool response: the value of `output` or `error` if that is its
/// only member, otherwise the whole response as JSON.
fn outcome(response: &Object<'_>, reading: &mut Importer<'_>) -> (String, ToolOutcome) {
    let Some(node) = response.get("response") else {
        return (String::new(), ToolOutcome::Success);
    };
    let Some(outcome) = node.object(reading) else {
        return (String::new(), ToolOutcome::Success);
    };
    let names: Vec<&str> = outcome.names().collect();
    let alone = match names.as_slice() {
        [] => return (String::new(), ToolOutcome::Success),
        [name] => outcome.get(name).filter(|_| [OUTPUT, ERROR].contains(name)),
        _ => None,
    };
    let failed = names == [ERROR];
    let text = alone.map_or_else(|| node.json(), |alone| alone.text_or_json(reading));
    (text, foreign::outcome(failed))
}

/// Reads a part of a model content.
fn answered(part: &Object<'_>, calls: &mut Calls, reading: &mut Importer<'_>) -> Option<Part> {
    let mut own = Map::new();
    let signature = member(part, "thoughtSignature").map(|node| node.text(reading));
    if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
        own.insert("thoughtSignature".to_owned(), Value::String(signature));
    }
    if let Some(call) = member(part, "functionCall") {
        return called(part, &call.object(reading)?, own, calls, reading);
    }
    if let Some(item) = ITEMS.iter().find(|kind| member(part, kind).is_some()) {
        return Some(Part::item(&part.at, items::item(item, part.raw), None));
    }
    let Some(text) = part.get("text") else {
        if own.is_empty() {
            let why = "must have text, functionCall or a type of the service itself";
            reading.note(part.at.clone(), FlawKind::Unsupported, why);
            return None;
        }
        let content = Content::Text(String::new());
        return Some(Part::new(&part.at, content).with_metadata(KIND, own));
    };
    let text = text.text(reading);
    if text.is_empty() && own.is_empty() {
        return None;
    }
    let read = if part.is_true("thought") {
        Part::reasoning(&part.at, text)
    } else {
        Part::new(&part.at, Content::Text(text))
    };
    Some(read.with_metadata(KIND, own))
}

fn called(
    part: &Object<'_>,
    call: &Object<'_>,
    mut own: Map<String, Value>,
    calls: &mut Calls,
    reading: &mut Importer<'_>,
) -> Option<Part> {
    let name = names::unescape(call.required("name", reading));
    let given = call.string("id", reading);
    let id = if given.is_empty() {
        reading.make_id()
    } else {
        own.insert("id".to_owned(), Value::String(given.clone()));
        given
    };
    calls.add(OpenCall { name: name.clone(), id: id.clone() });
    let arguments = call.get("args").map(|args| args.json());
    Some(Part::call(&part.at, id, name, arguments.unwrap_or_default()).with_metadata(KIND, own))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::PromptFormat,
        provider::foreign::{self, ForeignConversation},
    };

    fn import(contents: &Value) -> ForeignConversation {
        foreign::read(PromptFormat::Gemini, &contents.to_string(), "made_")
    }

    #[test]
    fn calls_without_ids_are_answered_by_name_and_in_order() {
        let contents = json!([
            {"parts": [{"text": "Look twice."}]},
            {"role": "model", "parts": [
                {"function_call": {"name": "look", "args": {"at": "a"}}, "thought_signature": "s"},
                {"functionCall": {"name": "_3d", "args": {}}},
                {"functionCall": {"name": "look", "args": {"at": "b"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "_3d", "response": {"error": "No."}}},
                {"functionResponse": {"name": "look", "response": {"output": "A"}}},
                {"functionResponse": {"name": "look", "response": {"a": 1, "b": 2}}},
                {"text": "Well?"},
            ]},
        ]);
        let ForeignConversation { messages, flaws } = import(&contents);
        assert_eq!(flaws, []);
        let results: Vec<(String, String, ToolOutcome)> = messages[2]
            .parts
            .iter()
            .map(|part| {
                let Content::Result { call, parts: given, outcome } = &part.content else { panic!("{part:?}") };
                let [Content::Text(text)] = given.as_slice() else { panic!("{given:?}") };
                (call.clone(), text.clone(), *outcome)
            })
            .collect();
        let expected = [
            ("made_2", "No.", ToolOutcome::Error),
            ("made_1", "A", ToolOutcome::Success),
            ("made_3", r#"{"a":1,"b":2}"#, ToolOutcome::Success),
        ];
        assert_eq!(results, expected.map(|(call, text, outcome)| (call.to_owned(), text.to_owned(), outcome)));
        assert_eq!(messages[3].role, Role::User);
    }
}
