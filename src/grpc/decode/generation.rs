//! Decodes generation settings.

use super::{Findings, Path, json_check, schema};
use crate::{
    codec::field::Field,
    model::Generation,
    pb::{self, FieldReason, limits::generation},
};

/// The name of a schema without one.
const DEFAULT_SCHEMA: &str = "answer";

/// Decodes the settings, whose limits are checked. Unset ones are inherited from the layer below. The
/// conversion is the same as for stored settings.
pub(super) fn read(at: Path<'_>, generation: Option<pb::Generation>, found: &mut Findings) -> Generation {
    let Some(mut generation) = generation else {
        return Generation::default();
    };
    check(at, &mut generation, found);
    found.converted(at, Field::from_field("generation", generation))
}

/// Checks what the limits of the fields do not express, sets the missing name of a response format, and converts
/// its schema to the form in which it is stored.
pub(super) fn check(at: Path<'_>, generation: &mut pb::Generation, found: &mut Findings) {
    if let Some(format) = &mut generation.response_format {
        if format.name.is_empty() {
            DEFAULT_SCHEMA.clone_into(&mut format.name);
        }
        if let Some(schema) = &mut format.json_schema {
            let at = at.field("response_format");
            schema::check(at.field("json_schema"), schema, found);
        }
    }
    let options = &generation.provider_options_json;
    if !options.is_empty()
        && generation::PROVIDER_OPTIONS_JSON.fits(options)
        && !json_check::is_object_of_objects(options)
    {
        found.invalid(
            at.field("provider_options_json"),
            FieldReason::NotJson,
            "must be a JSON object with one object per kind of provider",
        );
    }
}
