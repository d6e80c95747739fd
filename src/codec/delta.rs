//! Deltas to their wire form.

use crate::{
    model::{Delta, delta::DeltaKind},
    pb::{self, event::Payload},
};

use super::number::signed;

/// A delta as the payload of an event.
pub fn to_pb(delta: &Delta) -> Payload {
    let Delta { message, part, offset, text, kind } = delta;
    let (message_id, part_index, byte_offset, text) =
        (message.to_string(), signed(*part), signed(*offset), text.clone());
    match kind {
        DeltaKind::Text => Payload::TextDelta(pb::TextDelta { message_id, part_index, byte_offset, text }),
        DeltaKind::Reasoning => {
            Payload::ReasoningDelta(pb::ReasoningDelta { message_id, part_index, byte_offset, text })
        }
        DeltaKind::ToolInput { call, name } => Payload::ToolInputDelta(pb::ToolInputDelta {
            message_id,
            part_index,
            byte_offset,
            text,
            call_id: call.to_string(),
            tool_name: name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallId, MessageId};

    #[test]
    fn the_arguments_of_a_call_name_the_call() {
        let delta = Delta {
            message: MessageId::new("m1"),
            part: 1,
            offset: 5,
            text: "{\"a".to_owned(),
            kind: DeltaKind::ToolInput { call: CallId::new("c1"), name: "bash".to_owned() },
        };
        let expected = pb::ToolInputDelta {
            message_id: "m1".to_owned(),
            part_index: 1,
            byte_offset: 5,
            text: "{\"a".to_owned(),
            call_id: "c1".to_owned(),
            tool_name: "bash".to_owned(),
        };
        assert_eq!(to_pb(&delta), Payload::ToolInputDelta(expected));
    }
}
