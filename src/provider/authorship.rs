//! Which parts of a conversation belong to one provider: what its models wrote and the metadata it
//! attached.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::{Message, Part, ProviderItem};

/// Limit on the characters of the title of an item.
const MAX_TITLE_CHARS: usize = 200;

/// A part that only its service can read. The client of the service adds the provider name.
pub(super) fn item(kind: &str, json: String, title: &str) -> ProviderItem {
    let title = title.chars().take(MAX_TITLE_CHARS).collect();
    ProviderItem { provider: String::new(), kind: kind.to_owned(), json, title }
}

/// Whether this model of this provider wrote the message. Attached metadata has no meaning for
/// another model.
pub(super) fn wrote(provider: &str, model: &str, message: &Message) -> bool {
    let response = message.response.as_ref();
    response.is_some_and(|response| {
        let name = response.model.split_once('/').map(|(_, name)| name);
        response.provider == provider && name == Some(model)
    })
}

/// The metadata that a kind of provider attached to a part. Returns `None` if there is none.
pub(super) fn attached_metadata(kind: &str, part: &Part) -> Option<Map<String, Value>> {
    entry(kind, part.provider_metadata.as_deref()?)
}

/// A value in the metadata that a kind of provider attached to a part.
pub(super) fn attached(kind: &str, part: &Part, name: &str) -> Option<Value> {
    attached_metadata(kind, part)?.remove(name)
}

/// A string in the metadata that a kind of provider attached to a part.
pub(super) fn attached_string(kind: &str, part: &Part, name: &str) -> Option<String> {
    match attached(kind, part, name) {
        Some(Value::String(word)) => Some(word),
        _ => None,
    }
}

/// The entry for a kind of provider in the metadata. Returns `None` if there is none or it is not
/// an object.
pub(super) fn entry(kind: &str, metadata: &str) -> Option<Map<String, Value>> {
    let mut all: Map<String, Value> = serde_json::from_str(metadata).ok()?;
    match all.remove(kind)? {
        Value::Object(own) => Some(own),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// Metadata of a kind of provider, as [`entry`] reads it.
pub(super) fn metadata(kind: &str, own: impl Serialize) -> String {
    json!({ kind: own }).to_string()
}
