//! How the model is to answer.

use super::{
    Findings, Path, json_check, number, schema,
    text::{self, AtMost, KIB},
    tools,
};
use crate::{
    codec,
    model::{
        Generation,
        generation::{ReasoningEffort, ResponseFormat, ToolChoice, UpTo},
    },
    pb::{self, FieldReason, tool_choice},
};

/// Most stop sequences; no provider takes more.
const MOST_STOPS: usize = 16;
/// Most characters of a stop sequence.
const LONGEST_STOP: AtMost = AtMost::Chars(256);
/// Most bytes of a provider's own options.
const LARGEST_OPTIONS: AtMost = AtMost::Bytes(64 * KIB);
/// The name of a schema that is given none.
const DEFAULT_SCHEMA: &str = "answer";

/// Reads the wishes; what is not set is left to the layer below.
pub(super) fn read(at: Path<'_>, generation: Option<pb::Generation>, found: &mut Findings) -> Generation {
    let pb::Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed,
        reasoning_effort,
        reasoning_budget_tokens,
        tool_choice,
        parallel_tool_calls,
        response_format,
        provider_options_json,
    } = generation.unwrap_or_default();
    Generation {
        temperature: up_to(at.field("temperature"), temperature, found),
        top_p: up_to(at.field("top_p"), top_p, found),
        top_k: count(at.field("top_k"), top_k, found),
        stop_sequences: stops(at.field("stop_sequences"), stop_sequences, found),
        seed,
        reasoning_effort: effort(at.field("reasoning_effort"), reasoning_effort, found),
        reasoning_budget_tokens: count(at.field("reasoning_budget_tokens"), reasoning_budget_tokens, found),
        tool_choice: tool_choice.map(|it| choice(at.field("tool_choice"), it, found)),
        parallel_tool_calls,
        response_format: response_format.map(|it| format(at.field("response_format"), it, found)),
        provider_options: options(at.field("provider_options_json"), provider_options_json, found),
    }
}

fn up_to<const MOST: u8>(at: Path<'_>, number: Option<f64>, found: &mut Findings) -> Option<UpTo<MOST>> {
    let number = number?;
    number::within(at, &number, &(0.0..=f64::from(MOST)), found);
    UpTo::new(number)
}

/// Reads a count where 0 is a wish, not its absence.
fn count(at: Path<'_>, number: Option<i32>, found: &mut Findings) -> Option<u32> {
    let number = number?;
    number::not_negative(at, number.into(), found);
    u32::try_from(number).ok()
}

fn stops(at: Path<'_>, sequences: Vec<String>, found: &mut Findings) -> Vec<String> {
    if sequences.len() > MOST_STOPS {
        found.invalid(at, FieldReason::TooLarge, format!("must have at most {MOST_STOPS} elements"));
    }
    for (i, sequence) in sequences.iter().enumerate() {
        if sequence.is_empty() {
            found.required(at.index(i));
        }
        text::bounded(at.index(i), sequence, LONGEST_STOP, found);
    }
    sequences
}

fn effort(at: Path<'_>, effort: i32, found: &mut Findings) -> Option<ReasoningEffort> {
    number::known(at, effort, found).and_then(codec::generation::effort_from_pb)
}

fn choice(at: Path<'_>, choice: pb::ToolChoice, found: &mut Findings) -> ToolChoice {
    let pb::ToolChoice { choice } = choice;
    match choice {
        Some(tool_choice::Choice::Mode(mode)) => {
            number::known(at.field("mode"), mode, found).map_or(ToolChoice::Auto, codec::generation::mode_from_pb)
        }
        Some(tool_choice::Choice::ToolName(name)) => {
            tools::check_name(at.field("tool_name"), &name, found);
            ToolChoice::Tool(name)
        }
        None => ToolChoice::Auto,
    }
}

fn format(at: Path<'_>, format: pb::ResponseFormat, found: &mut Findings) -> ResponseFormat {
    let pb::ResponseFormat { json_schema, name, strict } = format;
    let name = if name.is_empty() { DEFAULT_SCHEMA.to_owned() } else { name };
    tools::check_name(at.field("name"), &name, found);
    ResponseFormat { schema: json_schema.map(|it| schema::json(at.field("json_schema"), it, found)), name, strict }
}

/// Reads the options by kind of provider. The text stays as it is.
fn options(at: Path<'_>, text: String, found: &mut Findings) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if text::bounded(at, &text, LARGEST_OPTIONS, found) && !json_check::is_object_of_objects(&text) {
        found.invalid(at, FieldReason::NotJson, "must be a JSON object that holds an object for each kind of provider");
    }
    Some(text)
}
