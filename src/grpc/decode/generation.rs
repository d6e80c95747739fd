//! Decodes generation settings.

use super::{
    Findings, Path, json_check, number,
    policy::optional_count,
    schema,
    text::{self, KIB, MaxLength},
    tools,
};
use crate::{
    codec,
    model::Generation,
    pb::{self, FieldReason, tool_choice},
};

/// Maximum number of stop sequences; no provider accepts more.
const MAX_STOP_SEQUENCES: usize = 16;
/// Maximum length of a stop sequence, in characters.
const MAX_STOP_SEQUENCE_LENGTH: MaxLength = MaxLength::Chars(256);
/// Maximum size of the provider options, in bytes.
const MAX_OPTIONS_SIZE: MaxLength = MaxLength::Bytes(64 * KIB);
/// The name of a schema without one.
const DEFAULT_SCHEMA: &str = "answer";

/// Decodes the settings. Unset ones are inherited from the layer below. Limits are checked here; the
/// conversion is the same as for stored settings.
pub(super) fn read(
    at: Path<'_>,
    generation: Option<pb::Generation>,
    found: &mut Findings,
) -> Generation {
    let Some(mut generation) = generation else {
        return Generation::default();
    };
    check(at, &mut generation, found);
    found.converted(at, codec::generation::from_stored(Some(generation)))
}

/// Checks the settings, and converts the response format to the form in which it is stored.
pub(super) fn check(at: Path<'_>, generation: &mut pb::Generation, found: &mut Findings) {
    let pb::Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed: _,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice,
        parallel_tool_calls: _,
        response_format,
        provider_options_json,
    } = generation;
    up_to(at.field("temperature"), *temperature, 2.0, found);
    up_to(at.field("top_p"), *top_p, 1.0, found);
    optional_count(at.field("top_k"), *top_k, found);
    check_stops(at.field("stop_sequences"), stop_sequences, found);
    number::enum_value::<pb::ReasoningEffort>(
        at.field("reasoning_effort"),
        *reasoning_effort,
        found,
    );
    optional_count(
        at.field("reasoning_budget_tokens"),
        *reasoning_budget_tokens,
        found,
    );
    if let Some(choice) = tool_choice {
        check_choice(at.field("tool_choice"), choice, found);
    }
    if let Some(format) = response_format {
        check_format(at.field("response_format"), format, found);
    }
    check_options(
        at.field("provider_options_json"),
        provider_options_json,
        found,
    );
}

fn up_to(at: Path<'_>, number: Option<f64>, most: f64, found: &mut Findings) {
    if let Some(number) = number {
        number::within(at, &number, &(0.0..=most), found);
    }
}

fn check_stops(at: Path<'_>, sequences: &[String], found: &mut Findings) {
    if sequences.len() > MAX_STOP_SEQUENCES {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_STOP_SEQUENCES} elements"),
        );
    }
    for (i, sequence) in sequences.iter().enumerate() {
        if sequence.is_empty() {
            found.required(at.index(i));
        }
        text::check_length(at.index(i), sequence, MAX_STOP_SEQUENCE_LENGTH, found);
    }
}

fn check_choice(at: Path<'_>, choice: &pb::ToolChoice, found: &mut Findings) {
    let pb::ToolChoice { choice } = choice;
    match choice {
        Some(tool_choice::Choice::Mode(mode)) => {
            number::enum_value::<pb::ToolChoiceMode>(at.field("mode"), *mode, found);
        }
        Some(tool_choice::Choice::ToolName(name)) => {
            tools::check_name(at.field("tool_name"), name, found)
        }
        None => {}
    }
}

/// Checks a response format, sets a missing name, and converts its schema to text.
fn check_format(at: Path<'_>, format: &mut pb::ResponseFormat, found: &mut Findings) {
    let pb::ResponseFormat {
        json_schema,
        name,
        strict: _,
    } = format;
    if name.is_empty() {
        DEFAULT_SCHEMA.clone_into(name);
    }
    tools::check_name(at.field("name"), name, found);
    if let Some(schema) = json_schema {
        schema::check(at.field("json_schema"), schema, found);
    }
}

/// Checks the options by kind of provider. The text is not changed.
fn check_options(at: Path<'_>, text: &str, found: &mut Findings) {
    let is_bounded = text.is_empty() || text::check_length(at, text, MAX_OPTIONS_SIZE, found);
    if is_bounded && !text.is_empty() && !json_check::is_object_of_objects(text) {
        found.invalid(
            at,
            FieldReason::NotJson,
            "must be a JSON object with one object per kind of provider",
        );
    }
}
