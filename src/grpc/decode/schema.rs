//! Decodes JSON Schemas, given as text or as an object.

use super::{Findings, Path, json};
use crate::pb::{self, FieldReason, json_schema::Schema, limits::json_schema};

/// Checks a schema, and converts an object to JSON text. Text is not changed.
pub(super) fn check(at: Path<'_>, schema: &mut pb::JsonSchema, found: &mut Findings) {
    let pb::JsonSchema { schema } = schema;
    match schema {
        Some(Schema::Json(text)) => {
            if json_schema::JSON.fits(text) {
                json::check_object(at.field("json"), text, found);
            }
        }
        Some(Schema::Value(object)) => {
            let at = at.field("value");
            let text = json::from_struct(at, std::mem::take(object), found);
            json_schema::JSON.check(at, &text, found);
            *schema = Some(Schema::Json(text));
        }
        None => found.invalid(at, FieldReason::Invalid, "must have a schema: json or value"),
    }
}
