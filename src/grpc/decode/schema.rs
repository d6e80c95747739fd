//! Decodes JSON Schemas, given as text or as an object.

use super::{
    Findings, Path, json,
    text::{self, KIB, MaxLength},
};
use crate::pb::{self, FieldReason, json_schema::Schema};

/// Maximum size of a schema as JSON text, in bytes.
const MAX_SCHEMA_SIZE: MaxLength = MaxLength::Bytes(256 * KIB);

/// Checks a schema, and converts an object to JSON text. Text is not changed.
pub(super) fn check(at: Path<'_>, schema: &mut pb::JsonSchema, found: &mut Findings) {
    let pb::JsonSchema { schema } = schema;
    match schema.take() {
        Some(Schema::Json(mut text)) => {
            let at = at.field("json");
            if text::check_length(at, &text, MAX_SCHEMA_SIZE, found) {
                text = json::object(at, text, found);
            }
            *schema = Some(Schema::Json(text));
        }
        Some(Schema::Value(object)) => {
            let at = at.field("value");
            let text = json::from_struct(at, object, found);
            text::check_length(at, &text, MAX_SCHEMA_SIZE, found);
            *schema = Some(Schema::Json(text));
        }
        None => found.invalid(
            at,
            FieldReason::Invalid,
            "must have a schema: json or value",
        ),
    }
}
