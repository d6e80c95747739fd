//! Messages of the API as JSON, in the protobuf JSON mapping.

use prost::Message;
use prost_reflect::DynamicMessage;

use super::{DecodeError, description::DESCRIPTOR_POOL};

/// Encodes a message as JSON. `name` is its full name in the proto.
pub fn encode(message: &impl Message, name: &'static str) -> Result<Vec<u8>, DecodeError> {
    let failed = |why: String| DecodeError::new(name, why);
    let descriptor =
        DESCRIPTOR_POOL.get_message_by_name(name).ok_or_else(|| failed("the proto has no such message".to_owned()))?;
    let bytes = message.encode_to_vec();
    let dynamic = DynamicMessage::decode(descriptor, &*bytes).map_err(|error| failed(error.to_string()))?;
    serde_json::to_vec(&dynamic).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pb;

    #[test]
    fn json_of_a_message_follows_the_protobuf_mapping() {
        let note = pb::PromptNote {
            kind: pb::PromptNoteKind::Pruned.into(),
            message_id: "m".to_owned(),
            part_index: -1,
            text: "Cleared.".to_owned(),
        };
        let prompt = pb::Prompt { context_version: 7, notes: vec![note], ..pb::Prompt::default() };
        let written: Value =
            serde_json::from_slice(&encode(&prompt, "contextd.v1.Prompt").expect("JSON")).expect("JSON");
        let note = json!({"kind": "PROMPT_NOTE_KIND_PRUNED", "messageId": "m", "partIndex": -1, "text": "Cleared."});
        assert_eq!(written, json!({"contextVersion": "7", "notes": [note]}));
        assert!(encode(&prompt, "contextd.v1.Nothing").is_err());
    }
}
