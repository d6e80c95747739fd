//! Deltas to their wire form, and stretches of deltas to the bytes that other replicas read.

use prost::Message as _;

use crate::{
    model::{
        CallId, Delta, MessageId, Seq, TurnId,
        delta::{DeltaBatch, DeltaKind},
        event::StepPosition,
    },
    pb::{self, event::Payload},
};

use super::{
    DecodeError,
    number::{signed, unsigned},
    read,
};

/// Converts a delta to the payload of an event.
pub fn to_pb(delta: &Delta) -> Payload {
    let Delta { message, part, offset, text, kind } = delta;
    let message_id = message.to_string();
    let part_index = signed(*part);
    let byte_offset = signed(*offset);
    let text = text.clone();
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

/// Encodes a stretch as a page of delta events. All of them follow the event after which the message is written.
pub fn encode_stretch(stretch: &DeltaBatch) -> Vec<u8> {
    let DeltaBatch { after, turn, at, deltas } = stretch;
    let event = |delta| pb::Event {
        turn_id: turn.to_string(),
        step: signed(at.step),
        attempt: signed(at.attempt),
        payload: Some(to_pb(delta)),
        ..pb::Event::default()
    };
    let events = deltas.iter().map(event).collect();
    pb::ListEventsResponse { events, next_after_seq: after.0, last_seq: after.0 }.encode_to_vec()
}

/// Decodes a stretch. Events of other kinds, written by a newer version, are ignored.
pub fn decode_stretch(bytes: &[u8]) -> Result<DeltaBatch, DecodeError> {
    let page: pb::ListEventsResponse = read("stretch of a message", bytes)?;
    let mut stretch = DeltaBatch {
        after: Seq(page.next_after_seq),
        turn: TurnId::new(page.events.first().map(|event| event.turn_id.clone()).unwrap_or_default()),
        at: StepPosition::default(),
        deltas: Vec::with_capacity(page.events.len()),
    };
    for event in page.events {
        stretch.at = StepPosition { step: unsigned("step", event.step)?, attempt: unsigned("attempt", event.attempt)? };
        stretch.deltas.extend(from_pb(event.payload)?);
    }
    Ok(stretch)
}

/// Reads a delta from an event's payload. Returns `None` if the payload is of another kind.
fn from_pb(payload: Option<Payload>) -> Result<Option<Delta>, DecodeError> {
    let (message, part, offset, text, kind) = match payload {
        Some(Payload::TextDelta(delta)) => {
            (delta.message_id, delta.part_index, delta.byte_offset, delta.text, DeltaKind::Text)
        }
        Some(Payload::ReasoningDelta(delta)) => {
            (delta.message_id, delta.part_index, delta.byte_offset, delta.text, DeltaKind::Reasoning)
        }
        Some(Payload::ToolInputDelta(delta)) => {
            let kind = DeltaKind::ToolInput { call: CallId::new(delta.call_id), name: delta.tool_name };
            (delta.message_id, delta.part_index, delta.byte_offset, delta.text, kind)
        }
        _ => return Ok(None),
    };
    let part = unsigned("part", part)?;
    let offset = unsigned("offset", offset)?;
    Ok(Some(Delta { message: MessageId::new(message), part, offset, text, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_chunk_round_trips() {
        let delta =
            |part, kind| Delta { message: MessageId::new("m1"), part, offset: 7, text: "é \"".to_owned(), kind };
        let call = DeltaKind::ToolInput { call: CallId::new("c1"), name: "bash".to_owned() };
        let stretch = DeltaBatch {
            after: Seq(12),
            turn: TurnId::new("t1"),
            at: StepPosition { step: 3, attempt: 2 },
            deltas: vec![delta(0, DeltaKind::Reasoning), delta(1, DeltaKind::Text), delta(2, call)],
        };
        assert_eq!(decode_stretch(&encode_stretch(&stretch)), Ok(stretch));
        assert!(decode_stretch(b"no page").is_err());
    }

    #[test]
    fn argument_deltas_name_their_call() {
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
