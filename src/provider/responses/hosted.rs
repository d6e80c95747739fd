//! Items of tools that the provider runs itself: kept as they came, with a line for people.

use serde_json::{Value, value::RawValue};

use crate::{model::ProviderItem, provider::http::lenient};

/// Bytes of an item that is kept with its result: a picture may be larger than an answer may be.
const MAX_ITEM_BYTES: usize = 256 << 10;

/// Characters of a title.
const TITLE_CHARS: usize = 200;

/// Where an item says what it is about, the most telling place first.
const TITLES: &[&str] = &[
    "/action/query",
    "/action/url",
    "/action/commands/0",
    "/queries/0",
    "/revised_prompt",
    "/prompt",
    "/name",
    "/server_label",
];

/// An item as a part that only its provider can read.
pub(super) fn item(kind: &str, raw: &RawValue) -> ProviderItem {
    let item = lenient::value(raw.get()).unwrap_or_default();
    let title = TITLES
        .iter()
        .filter_map(|place| item.pointer(place)?.as_str())
        .find(|words| !words.trim().is_empty())
        .unwrap_or_default();
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    ProviderItem {
        provider: String::new(),
        kind: kind.to_owned(),
        json: kept(raw, item),
        title: title.chars().take(TITLE_CHARS).collect(),
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
