//! Items of tools that the provider runs itself: kept as they came, with a line for people.

use serde_json::{Value, value::RawValue};

use crate::{model::ProviderItem, provider::http::lenient};

/// Bytes of an item that is kept with its result: a picture may be larger than an answer may be.
const MAX_ITEM_BYTES: usize = 256 << 10;

/// Characters of a title.
const TITLE_CHARS: usize = 200;

/// An item as a part that only its provider can read.
pub(super) fn item(kind: &str, raw: &RawValue) -> ProviderItem {
    let item = lenient::value(raw.get()).unwrap_or_default();
    let title = title(kind, &item);
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    ProviderItem {
        provider: String::new(),
        kind: kind.to_owned(),
        json: kept(raw, item),
        title: title.chars().take(TITLE_CHARS).collect(),
    }
}

/// What was done, as a line for people; empty where the kind is not known.
fn title(kind: &str, item: &Value) -> String {
    let of = |places: &[&str]| {
        let words = places
            .iter()
            .filter_map(|place| item.pointer(place)?.as_str());
        words
            .map(str::trim)
            .find(|words| !words.is_empty())
            .map(str::to_owned)
    };
    let about = |done: &str, places: &[&str]| match of(places) {
        Some(words) => format!("{done}: {words}"),
        None => done.to_owned(),
    };
    match (kind, of(&["/action/type"]).as_deref()) {
        ("web_search_call", Some("open_page")) => about("Opened a page", &["/action/url"]),
        ("web_search_call", Some("find_in_page")) => about("Searched a page", &["/action/pattern"]),
        ("web_search_call", _) => {
            about("Searched the web", &["/action/query", "/action/queries/0"])
        }
        ("file_search_call", _) => about("Searched files", &["/queries/0"]),
        ("code_interpreter_call", _) => "Ran code".to_owned(),
        ("image_generation_call", _) => about("Made a picture", &["/revised_prompt", "/prompt"]),
        ("mcp_list_tools", _) => about("Listed tools", &["/server_label"]),
        ("mcp_call" | "custom_tool_call", _) => about("Called a tool", &["/name"]),
        ("mcp_approval_request", _) => about("Asks to call a tool", &["/name"]),
        ("shell_call" | "local_shell_call", _) => about(
            "Ran a command",
            &["/action/commands/0", "/action/command/0"],
        ),
        ("compaction", _) => "Compacted the conversation".to_owned(),
        (_, _) => String::new(),
    }
}

/// The item as it came; without its result where that is too large to be kept.
fn kept(raw: &RawValue, mut item: Value) -> String {
    match item.get_mut("result") {
        Some(result) if raw.get().len() > MAX_ITEM_BYTES => {
            *result = Value::Null;
            item.to_string()
        }
        Some(_) | None => raw.get().to_owned(),
    }
}

/// Whether an item can be sent back: one whose result was not kept cannot.
pub(super) fn is_whole(item: &Value) -> bool {
    item.get("result").is_none_or(|result| !result.is_null())
}
