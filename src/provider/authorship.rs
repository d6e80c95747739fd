//! The parts of a conversation that belong to one provider: what its models wrote, and what it
//! attached.

use serde_json::{Map, Value};

use crate::model::{Message, Part};

/// Whether that model of that provider wrote the message. What was attached means nothing to
/// another one.
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

/// What a kind of provider attached to a part. `None` means nothing.
pub(super) fn attached(kind: &str, part: &Part) -> Option<Map<String, Value>> {
    entry(kind, part.provider_metadata.as_deref()?)
}

/// What stands under the name of a kind of provider. `None` means nothing.
pub(super) fn entry(kind: &str, metadata: &str) -> Option<Map<String, Value>> {
    let mut all: Map<String, Value> = serde_json::from_str(metadata).ok()?;
    match all.remove(kind)? {
        Value::Object(own) => Some(own),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    }
}
