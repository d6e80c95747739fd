//! Which parts of a conversation belong to one provider: what its models wrote and the metadata it
//! attached.

use serde_json::{Map, Value};

use crate::model::{Message, Part};

/// Whether this model of this provider wrote the message. Attached metadata has no meaning for
/// another model.
pub(super) fn wrote(provider: &str, model: &str, message: &Message) -> bool {
    let named = |reference: &str| {
        reference
            .split_once('/')
            .is_some_and(|(_, name)| name == model)
    };
    message
        .response
        .as_ref()
        .is_some_and(|response| response.provider == provider && named(&response.model))
}

/// The metadata that a kind of provider attached to a part. Returns `None` if there is none.
pub(super) fn attached_metadata(kind: &str, part: &Part) -> Option<Map<String, Value>> {
    entry(kind, part.provider_metadata.as_deref()?)
}

/// The entry for a kind of provider in the metadata. Returns `None` if there is none or it is not
/// an object.
pub(super) fn entry(kind: &str, metadata: &str) -> Option<Map<String, Value>> {
    let mut all: Map<String, Value> = serde_json::from_str(metadata).ok()?;
    match all.remove(kind)? {
        Value::Object(own) => Some(own),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    }
}
