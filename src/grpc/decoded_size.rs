//! Computes how much memory a request takes once decoded, by walking its bytes: an empty message takes two
//! bytes on the wire and hundreds in memory, so a few megabytes of them could exhaust memory.
//!
//! The sizes are derived from the proto descriptors and match the generated types, apart from padding.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use crate::codec::description::DESCRIPTOR_POOL;

/// Size in bytes of a list, map, string or bytes value, without its content.
const LIST: usize = 24;
/// Size in bytes of a number, and of a boxed message.
const WORD: usize = 8;
/// Maximum nesting of messages; prost decodes no deeper.
const MAX_DEPTH: usize = 100;

/// Shapes of the request messages, by RPC path.
static REQUESTS: LazyLock<Requests> = LazyLock::new(Requests::of_all_services);

#[derive(Debug, Default)]
struct Requests {
    shapes: Vec<Shape>,
    by_message: HashMap<String, usize>,
    by_path: HashMap<String, usize>,
}

/// The in-memory size of a message, and the fields that can add to it.
#[derive(Debug, Default)]
struct Shape {
    size: usize,
    fields: BTreeMap<u32, Field>,
}

/// The memory that one occurrence of a field on the wire adds.
#[derive(Debug, Clone, Copy)]
enum Field {
    /// A message of this shape. Allocated separately if `is_apart`, otherwise part of the enclosing message.
    Message { shape: usize, is_apart: bool },
    /// A string or bytes value; its content is allocated separately.
    Bytes { is_repeated: bool },
    /// A number. If repeated, one packed occurrence can hold many.
    Number { is_repeated: bool },
}

/// The request takes more memory than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Bytes that the request of an RPC takes once decoded. Returns an error if that is more than `limit`.
/// Malformed bytes count up to the first error.
pub(super) fn of_request(path: &str, bytes: &[u8], limit: usize) -> Result<usize, TooLarge> {
    let Some(shape) = REQUESTS.by_path.get(path) else {
        return Ok(bytes.len());
    };
    let mut walk = Walk { size: 0, limit };
    walk.add(REQUESTS.shapes[*shape].size)?;
    // Malformed bytes are left to the decoder to reject.
    let _flaw = walk.message(*shape, bytes, MAX_DEPTH)?;
    Ok(walk.size)
}

impl Requests {
    fn of_all_services() -> Self {
        let mut all = Self::default();
        for method in DESCRIPTOR_POOL.services().flat_map(|it| it.methods().collect::<Vec<_>>()) {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            let shape = all.shape(&method.input());
            all.by_path.insert(path, shape);
        }
        all
    }

    /// The shape of a message, built on first use. A shape under construction has size zero, which marks a
    /// recursive field as boxed.
    fn shape(&mut self, message: &MessageDescriptor) -> usize {
        if let Some(known) = self.by_message.get(message.full_name()) {
            return *known;
        }
        let index = self.shapes.len();
        self.shapes.push(Shape::default());
        self.by_message.insert(message.full_name().to_owned(), index);
        let mut fields = BTreeMap::new();
        let mut size = 0;
        let mut choices: HashMap<String, usize> = HashMap::new();
        for field in message.fields() {
            let (inline, kind) = self.field(&field);
            fields.insert(field.number(), kind);
            match field.containing_oneof() {
                Some(choice) => {
                    let largest = choices.entry(choice.name().to_owned()).or_default();
                    size += inline.saturating_sub(*largest);
                    *largest = inline.max(*largest);
                }
                None => size += inline,
            }
        }
        self.shapes[index] = Shape { size, fields };
        index
    }

    /// The size of a field within its message, and what each occurrence adds.
    fn field(&mut self, field: &FieldDescriptor) -> (usize, Field) {
        let is_repeated = field.cardinality() == Cardinality::Repeated;
        let kind = field.kind();
        if let Kind::Message(message) = kind {
            let shape = self.shape(&message);
            // Zero while the shape is under construction.
            let inline = self.shapes[shape].size;
            let is_apart = is_repeated || inline == 0;
            let inline = match (is_repeated, is_apart) {
                (true, _) => LIST,
                (false, true) => WORD,
                (false, false) => inline,
            };
            return (inline, Field::Message { shape, is_apart });
        }
        if matches!(kind, Kind::String | Kind::Bytes) {
            return (LIST, Field::Bytes { is_repeated });
        }
        (if is_repeated { LIST } else { WORD }, Field::Number { is_repeated })
    }
}

/// A walk over the bytes of a message.
struct Walk {
    size: usize,
    limit: usize,
}

/// False if the bytes are malformed.
type IsWellFormed = bool;

impl Walk {
    fn add(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.size = self.size.saturating_add(bytes);
        if self.size > self.limit {
            return Err(TooLarge);
        }
        Ok(())
    }

    fn message(&mut self, shape: usize, bytes: &[u8], depth: usize) -> Result<IsWellFormed, TooLarge> {
        let Some(deeper) = depth.checked_sub(1) else {
            return Ok(false);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((number, content)) = take_field(&mut rest) else {
                return Ok(false);
            };
            let field = REQUESTS.shapes[shape].fields.get(&number).copied();
            match (field, content) {
                (Some(Field::Message { shape, is_apart }), Some(inner)) => {
                    if is_apart {
                        self.add(REQUESTS.shapes[shape].size)?;
                    }
                    if !self.message(shape, inner, deeper)? {
                        return Ok(false);
                    }
                }
                (Some(Field::Bytes { is_repeated }), Some(inner)) => {
                    self.add(inner.len() + if is_repeated { LIST } else { 0 })?;
                }
                // Packed numbers may take a single byte each.
                (Some(Field::Number { is_repeated: true }), Some(inner)) => {
                    self.add(inner.len().saturating_mul(WORD))?;
                }
                (Some(Field::Number { is_repeated: true }), None) => self.add(WORD)?,
                // Unknown fields are skipped, and a wrong wire type is rejected by the decoder.
                (Some(Field::Number { is_repeated: false }) | None, _)
                | (Some(Field::Message { .. } | Field::Bytes { .. }), None) => {}
            }
        }
        Ok(true)
    }
}

/// Reads a field: its number, and its content if it is length-delimited. Returns `None` if it is malformed.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    let (number, wire_type) = decode_key(rest).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, rest, DecodeContext::default()).ok()?;
        return Some((number, None));
    }
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (content, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((number, Some(content)))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::pb;

    const COUNT: &str = "/contextd.v1.ContextService/CountTokens";
    const EXECUTE: &str = "/contextd.v1.TurnService/ExecuteTurn";
    const LIMIT: usize = 32 << 20;

    fn shape(name: &str) -> &'static Shape {
        &REQUESTS.shapes[REQUESTS.by_message[name]]
    }

    #[test]
    fn sizes_are_close_to_those_of_the_generated_types() {
        let check = |name: &str, actual: usize| {
            let found = shape(name).size;
            assert!(found * 2 >= actual && found <= actual * 3, "{name}: {found} for {actual}");
        };
        check("contextd.v1.InputMessage", size_of::<pb::InputMessage>());
        check("contextd.v1.Part", size_of::<pb::Part>());
        check("contextd.v1.Tool", size_of::<pb::Tool>());
        check("contextd.v1.ToolResult", size_of::<pb::ToolResult>());
        check("google.protobuf.Value", size_of::<prost_types::Value>());
    }

    #[test]
    fn a_request_of_empty_messages_is_as_large_as_they_are_in_memory() {
        let one =
            pb::CountTokensRequest { messages: vec![pb::InputMessage::default()], ..pb::CountTokensRequest::default() };
        let field = one.encode_to_vec();
        assert_eq!(field.len(), 2);
        let thousand = field.repeat(1_000);
        let found = of_request(COUNT, &thousand, LIMIT).unwrap();
        assert!(found >= 1_000 * size_of::<pb::InputMessage>() / 2, "{found}");
        let millions = field.repeat(2_050_000);
        assert_eq!(of_request(COUNT, &millions, LIMIT), Err(TooLarge));
    }

    #[test]
    fn what_is_hidden_after_a_group_or_in_deep_messages_is_counted() {
        let part = pb::Part::default();
        let message = pb::InputMessage { parts: vec![part; 200_000], ..pb::InputMessage::default() };
        let request = pb::ExecuteTurnRequest { input: Some(message), ..pb::ExecuteTurnRequest::default() };
        let bytes = request.encode_to_vec();
        assert_eq!(of_request(EXECUTE, &bytes, LIMIT), Err(TooLarge));
        // Nested groups of field 1,000.
        let group = [0xc3, 0x3e, 0xc3, 0x3e, 0x08, 1, 0xc4, 0x3e, 0xc4, 0x3e];
        let hidden = [&group[..], &bytes].concat();
        assert_eq!(of_request(EXECUTE, &hidden, LIMIT), Err(TooLarge));
    }

    #[test]
    fn texts_are_as_large_as_they_are_and_malformed_bytes_end_the_walk() {
        let text = "word ".repeat(100_000);
        let request = pb::CountTokensRequest { system_prompt: text.clone(), ..pb::CountTokensRequest::default() };
        let bytes = request.encode_to_vec();
        let found = of_request(COUNT, &bytes, LIMIT).unwrap();
        assert!((text.len()..text.len() + 4_096).contains(&found), "{found}");
        assert!(of_request(COUNT, &bytes[..bytes.len() - 1], LIMIT).is_ok());
        for malformed in [&[0xff; 11][..], &[0x0f], &[0x0c], &[0x0b], &[0x0a, 0xff]] {
            assert!(of_request(COUNT, malformed, LIMIT).is_ok(), "{malformed:?}");
        }
    }
}
