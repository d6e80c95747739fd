//! Items of server tools, which the provider runs itself. They are stored unchanged, with a
//! human-readable title.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use crate::{
    model::{NewContent, ProviderItem},
    provider::{
        authorship, generated_image,
        http::lenient::{self, member},
    },
};

/// Limit on the bytes of an item that is stored with its result. An image may exceed the limit on a
/// response.
const MAX_ITEM_BYTES: usize = 256 << 10;

/// Creates a provider item.
pub(super) fn item(kind: &str, raw: &RawValue) -> ProviderItem {
    let item = lenient::value(raw.get()).unwrap_or_default();
    let title = title(kind, &item);
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    authorship::item(kind, kept(raw, item), &title)
}

/// The kind of an item with an image.
const PICTURE: &str = "image_generation_call";

/// Splits an item into its image and the rest. Returns `None` if it has no image.
pub(super) fn picture(kind: &str, raw: &RawValue) -> Option<(NewContent, Value)> {
    if kind != PICTURE {
        return None;
    }
    let mut item = lenient::value(raw.get())?;
    let picture = generated_image::content(item["result"].as_str()?)?;
    item.as_object_mut()?.remove("result");
    Some((picture, item))
}

/// A human-readable line that describes the item. Empty if the kind is unknown.
fn title(kind: &str, item: &Value) -> String {
    let of = |places: &[&str]| {
        let words = places.iter().filter_map(|at| item.pointer(at)?.as_str());
        let mut words = words.map(str::trim).filter(|words| !words.is_empty());
        words.next().map(str::to_owned)
    };
    let about = |done: &str, places: &[&str]| match of(places) {
        Some(words) => format!("{done}: {words}"),
        None => done.to_owned(),
    };
    match (kind, of(&["/action/type"]).as_deref()) {
        ("web_search_call", Some("open_page")) => about("Opened a page", &["/action/url"]),
        ("web_search_call", Some("find_in_page")) => about("Searched a page", &["/action/pattern"]),
        ("web_search_call", _) => about("Searched the web", &["/action/query", "/action/queries/0"]),
        ("file_search_call", _) => about("Searched files", &["/queries/0"]),
        ("code_interpreter_call", _) => "Ran code".to_owned(),
        ("image_generation_call", _) => about("Made a picture", &["/revised_prompt", "/prompt"]),
        ("mcp_list_tools", _) => about("Listed tools", &["/server_label"]),
        ("mcp_call" | "custom_tool_call", _) => about("Called a tool", &["/name"]),
        ("mcp_approval_request", _) => about("Asks to call a tool", &["/name"]),
        ("shell_call" | "local_shell_call", _) => about("Ran a command", &["/action/commands/0", "/action/command/0"]),
        ("compaction", _) => "Compacted the conversation".to_owned(),
        (_, _) => String::new(),
    }
}

/// The item unchanged, or without its result if that is too large to store.
fn kept(raw: &RawValue, mut item: Value) -> String {
    match item.get_mut("result") {
        Some(result) if raw.get().len() > MAX_ITEM_BYTES => {
            *result = Value::Null;
            item.to_string()
        }
        Some(_) | None => raw.get().to_owned(),
    }
}

/// Server tool calls that the client may have to run.
const CALLS: [&str; 5] = ["local_shell_call", "computer_call", "apply_patch_call", "shell_call", "tool_search_call"];

/// The calls of a response that the service leaves to the client to run, by id, with their kinds.
/// For calls that the service runs itself, it sends the output.
#[derive(Debug, Default)]
pub(super) struct ClientCalls(BTreeMap<String, String>);

impl ClientCalls {
    /// Adds the next item of a response.
    pub(super) fn add(&mut self, kind: &str, json: &str) {
        let id = member(json, "call_id");
        if kind.ends_with("_output") {
            self.0.remove(&id);
        } else if CALLS.contains(&kind) && !is_run_by_service(kind, json) {
            self.0.insert(id, kind.to_owned());
        }
    }

    /// The kind of the first call without an output. Returns `None` if there is none.
    pub(super) fn first(&self) -> Option<&str> {
        self.0.values().next().map(String::as_str)
    }

    /// Whether an item is one of these calls.
    pub(super) fn has(&self, kind: &str, json: &str) -> bool {
        self.0.get(&member(json, "call_id")).is_some_and(|it| it == kind)
    }
}

fn is_run_by_service(kind: &str, json: &str) -> bool {
    kind == "tool_search_call" && member(json, "execution") != "client"
}

/// Whether an item can be sent back. An item whose result was not stored cannot.
pub(super) fn is_whole(item: &Value) -> bool {
    item.get("result").is_none_or(|result| !result.is_null())
}
