//! How the model is to answer, which a later version takes.

use super::{Findings, Path, json, number, schema, tools};
use crate::pb::{self, tool_choice};

/// Notes what is wrong with the wishes, and the first that is set as not implemented.
pub(super) fn check(at: Path<'_>, generation: Option<pb::Generation>, found: &mut Findings) {
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
    let mut set = |is_set: bool, field: &'static str| {
        if is_set {
            found.not_implemented(at.field(field));
        }
    };
    set(temperature.is_some(), "temperature");
    set(top_p.is_some(), "top_p");
    set(top_k.is_some(), "top_k");
    set(!stop_sequences.is_empty(), "stop_sequences");
    set(seed.is_some(), "seed");
    set(reasoning_effort != 0, "reasoning_effort");
    set(reasoning_budget_tokens.is_some(), "reasoning_budget_tokens");
    set(tool_choice.is_some(), "tool_choice");
    set(parallel_tool_calls.is_some(), "parallel_tool_calls");
    set(response_format.is_some(), "response_format");
    set(!provider_options_json.is_empty(), "provider_options_json");

    number::within(at.field("temperature"), &temperature.unwrap_or_default(), &(0.0..=2.0), found);
    number::within(at.field("top_p"), &top_p.unwrap_or_default(), &(0.0..=1.0), found);
    number::not_negative(at.field("top_k"), top_k.unwrap_or_default().into(), found);
    check_stop_sequences(at.field("stop_sequences"), &stop_sequences, found);
    number::known::<pb::ReasoningEffort>(at.field("reasoning_effort"), reasoning_effort, found);
    let budget = reasoning_budget_tokens.unwrap_or_default();
    number::not_negative(at.field("reasoning_budget_tokens"), budget.into(), found);
    check_tool_choice(at.field("tool_choice"), tool_choice, found);
    check_response_format(at.field("response_format"), response_format, found);
    json::optional_object(at.field("provider_options_json"), provider_options_json, found);
}

fn check_stop_sequences(at: Path<'_>, sequences: &[String], found: &mut Findings) {
    for (i, _) in sequences.iter().enumerate().filter(|(_, sequence)| sequence.is_empty()) {
        found.required(at.index(i));
    }
}

fn check_tool_choice(at: Path<'_>, choice: Option<pb::ToolChoice>, found: &mut Findings) {
    let pb::ToolChoice { choice } = choice.unwrap_or_default();
    match choice {
        Some(tool_choice::Choice::Mode(mode)) => {
            number::known::<pb::ToolChoiceMode>(at.field("mode"), mode, found);
        }
        Some(tool_choice::Choice::ToolName(name)) => tools::check_name(at.field("tool_name"), &name, found),
        None => {}
    }
}

fn check_response_format(at: Path<'_>, format: Option<pb::ResponseFormat>, found: &mut Findings) {
    let pb::ResponseFormat { json_schema, name: _, strict: _ } = format.unwrap_or_default();
    json_schema.map(|schema| schema::json(at.field("json_schema"), schema, found));
}
