//! Parts that only the service can read. They are stored unchanged, with a human-readable title.
//! Base64 content may exceed the limit on a response, so large content is not stored. Images of a
//! response become media instead.

use serde_json::{Value, json, value::RawValue};

use crate::{
    model::{NewContent, ProviderItem, json::replace_lone_surrogates},
    provider::{authorship, generated_image, http::lenient},
};

/// The kind of a part with base64 content, such as an image that the model generated.
const INLINE_DATA: &str = "inlineData";

/// Limit on the bytes of a part that is stored with its content.
const MAX_ITEM_BYTES: usize = 256 << 10;

/// The image in a part of a response. Returns `None` if the part is not an image, or is an
/// intermediate image of the model's reasoning.
pub(super) fn picture(kind: &str, raw: &RawValue) -> Option<NewContent> {
    if kind != INLINE_DATA {
        return None;
    }
    let part = lenient::value(raw.get())?;
    let data = part[INLINE_DATA]["data"].as_str()?;
    generated_image::content(data).filter(|_| part["thought"] != true)
}

/// Creates the item for a part that only the service can read.
pub(super) fn item(kind: &str, raw: &RawValue) -> ProviderItem {
    let json = replace_lone_surrogates(raw.get()).into_owned();
    let value = lenient::value(&json).unwrap_or_default();
    let title = ["code", "output", "mimeType", "fileUri", "toolType"]
        .iter()
        .find_map(|field| value[kind][field].as_str())
        .and_then(|words| words.lines().next())
        .unwrap_or_default();
    authorship::item(kind, kept(kind, json, &value), title)
}

/// The JSON to store. For large content only the media type, without the signature, which would
/// sign missing content.
fn kept(kind: &str, json: String, value: &Value) -> String {
    if kind != INLINE_DATA || json.len() <= MAX_ITEM_BYTES {
        return json;
    }
    let media_type = &value[INLINE_DATA]["mimeType"];
    json!({ INLINE_DATA: { "mimeType": media_type, "data": null } }).to_string()
}

/// Whether a part can be sent back. A part whose content was not stored cannot.
pub(super) fn is_whole(item: &ProviderItem) -> bool {
    item.kind != INLINE_DATA || lenient::value(&item.json).is_none_or(|part| !part[INLINE_DATA]["data"].is_null())
}
