//! JSON Schemas, given as text or as an object.

use super::{
    Findings, Path, json,
    text::{self, AtMost, KIB},
};
use crate::pb::{self, FieldReason, json_schema};

/// Most bytes of a schema as JSON text.
const LARGEST: AtMost = AtMost::Bytes(256 * KIB);

/// Reads a schema as JSON text; text stays as it is.
pub(super) fn json(at: Path<'_>, schema: pb::JsonSchema, found: &mut Findings) -> String {
    let pb::JsonSchema { schema } = schema;
    match schema {
        Some(json_schema::Schema::Json(text)) => {
            let at = at.field("json");
            if text::bounded(at, &text, LARGEST, found) {
                json::object(at, text, found)
            } else {
                text
            }
        }
        Some(json_schema::Schema::Value(object)) => {
            let at = at.field("value");
            let text = json::from_struct(at, object, found);
            text::bounded(at, &text, LARGEST, found);
            text
        }
        None => {
            found.invalid(
                at,
                FieldReason::Invalid,
                "must have a schema: json or value",
            );
            String::new()
        }
    }
}
