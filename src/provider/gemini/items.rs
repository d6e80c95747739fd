//! Parts that only the service can read: kept as they came, with a line for people. What a part holds in
//! base64 may be larger than a whole answer may be, so a large one is not kept. Pictures of an answer
//! are media instead.

use serde_json::{Value, json, value::RawValue};

use crate::{
    model::{NewContent, ProviderItem, json::sound},
    provider::{http::lenient, made},
};

/// The kind of a part with content in base64, such as a picture that the model made.
const INLINE_DATA: &str = "inlineData";

/// Bytes of a part that is kept with its content.
const MAX_ITEM_BYTES: usize = 256 << 10;

/// Characters of a title.
const MAX_TITLE_CHARS: usize = 200;

/// The picture that a part of an answer holds. `None` if it is something else, or one that the model made on
/// its way to the answer.
pub(super) fn picture(kind: &str, raw: &RawValue) -> Option<NewContent> {
    if kind != INLINE_DATA {
        return None;
    }
    let part = lenient::value(raw.get())?;
    let data = part[INLINE_DATA]["data"].as_str()?;
    made::content(data).filter(|_| part["thought"] != true)
}

/// A part that only the service can read.
pub(super) fn item(kind: &str, raw: &RawValue) -> ProviderItem {
    let json = sound(raw.get()).into_owned();
    let value = lenient::value(&json).unwrap_or_default();
    let title = ["code", "output", "mimeType", "fileUri", "toolType"]
        .iter()
        .find_map(|field| value[kind][field].as_str())
        .and_then(|words| words.lines().next())
        .unwrap_or_default();
    ProviderItem {
        provider: String::new(),
        kind: kind.to_owned(),
        title: title.chars().take(MAX_TITLE_CHARS).collect(),
        json: kept(kind, json, &value),
    }
}

/// The part as it came; of large content only its type, also without its signature, which signs what
/// is not there.
fn kept(kind: &str, json: String, value: &Value) -> String {
    if kind != INLINE_DATA || json.len() <= MAX_ITEM_BYTES {
        return json;
    }
    let media_type = &value[INLINE_DATA]["mimeType"];
    json!({ INLINE_DATA: { "mimeType": media_type, "data": null } }).to_string()
}

/// Whether a part can be sent back: one whose content was not kept cannot.
pub(super) fn is_whole(item: &ProviderItem) -> bool {
    item.kind != INLINE_DATA
        || lenient::value(&item.json).is_none_or(|part| !part[INLINE_DATA]["data"].is_null())
}
