//! Generation options, to and from their proto form.

use crate::{
    model::{
        Generation,
        generation::{ReasoningEffort, ResponseFormat, ToolChoice, UpTo},
    },
    pb::{self, tool_choice::Choice},
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
    tools::{schema_from_pb, schema_to_pb},
};

/// Converts the options for storage and responses. Returns `None` if no option is set.
pub fn to_stored(generation: &Generation) -> Option<pb::Generation> {
    (*generation != Generation::default()).then(|| to_pb(generation))
}

/// Reads stored options; `None` means that no option is set.
pub(crate) fn from_stored(generation: Option<pb::Generation>) -> Result<Generation, DecodeError> {
    generation
        .map(from_pb)
        .transpose()
        .map(Option::unwrap_or_default)
}

fn to_pb(generation: &Generation) -> pb::Generation {
    let Generation {
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
        provider_options,
    } = generation;
    pb::Generation {
        temperature: temperature.map(UpTo::get),
        top_p: top_p.map(UpTo::get),
        top_k: top_k.map(signed),
        stop_sequences: stop_sequences.clone(),
        seed: *seed,
        reasoning_effort: reasoning_effort
            .map_or(pb::ReasoningEffort::Unspecified, effort_to_pb)
            .into(),
        reasoning_budget_tokens: reasoning_budget_tokens.map(signed),
        tool_choice: tool_choice.as_ref().map(choice_to_pb),
        parallel_tool_calls: *parallel_tool_calls,
        response_format: response_format.as_ref().map(format_to_pb),
        provider_options_json: provider_options.clone().unwrap_or_default(),
    }
}

fn from_pb(generation: pb::Generation) -> Result<Generation, DecodeError> {
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
    } = generation;
    Ok(Generation {
        temperature: temperature
            .map(|number| up_to("temperature", number))
            .transpose()?,
        top_p: top_p.map(|number| up_to("top_p", number)).transpose()?,
        top_k: top_k.map(|number| unsigned("top_k", number)).transpose()?,
        stop_sequences,
        seed,
        reasoning_effort: effort_from_pb(known("reasoning effort", reasoning_effort)?),
        reasoning_budget_tokens: reasoning_budget_tokens
            .map(|number| unsigned("reasoning budget", number))
            .transpose()?,
        tool_choice: tool_choice.map(choice_from_pb).transpose()?,
        parallel_tool_calls,
        response_format: response_format.map(format_from_pb).transpose()?,
        provider_options: Some(provider_options_json).filter(|options| !options.is_empty()),
    })
}

fn up_to<const MOST: u8>(what: &'static str, number: f64) -> Result<UpTo<MOST>, DecodeError> {
    UpTo::new(number)
        .ok_or_else(|| DecodeError::new(what, format_args!("{number} is out of range")))
}

/// Converts a reasoning effort.
pub fn effort_to_pb(effort: ReasoningEffort) -> pb::ReasoningEffort {
    match effort {
        ReasoningEffort::None => pb::ReasoningEffort::None,
        ReasoningEffort::Minimal => pb::ReasoningEffort::Minimal,
        ReasoningEffort::Low => pb::ReasoningEffort::Low,
        ReasoningEffort::Medium => pb::ReasoningEffort::Medium,
        ReasoningEffort::High => pb::ReasoningEffort::High,
        ReasoningEffort::Xhigh => pb::ReasoningEffort::Xhigh,
        ReasoningEffort::Max => pb::ReasoningEffort::Max,
    }
}

/// Reads a reasoning effort. Returns `None` if it is not set.
pub fn effort_from_pb(effort: pb::ReasoningEffort) -> Option<ReasoningEffort> {
    match effort {
        pb::ReasoningEffort::Unspecified => None,
        pb::ReasoningEffort::None => Some(ReasoningEffort::None),
        pb::ReasoningEffort::Minimal => Some(ReasoningEffort::Minimal),
        pb::ReasoningEffort::Low => Some(ReasoningEffort::Low),
        pb::ReasoningEffort::Medium => Some(ReasoningEffort::Medium),
        pb::ReasoningEffort::High => Some(ReasoningEffort::High),
        pb::ReasoningEffort::Xhigh => Some(ReasoningEffort::Xhigh),
        pb::ReasoningEffort::Max => Some(ReasoningEffort::Max),
    }
}

fn choice_to_pb(choice: &ToolChoice) -> pb::ToolChoice {
    let mode = |mode: pb::ToolChoiceMode| Choice::Mode(mode.into());
    let choice = match choice {
        ToolChoice::Auto => mode(pb::ToolChoiceMode::Auto),
        ToolChoice::None => mode(pb::ToolChoiceMode::None),
        ToolChoice::Required => mode(pb::ToolChoiceMode::Required),
        ToolChoice::Tool(name) => Choice::ToolName(name.clone()),
    };
    pb::ToolChoice {
        choice: Some(choice),
    }
}

fn choice_from_pb(choice: pb::ToolChoice) -> Result<ToolChoice, DecodeError> {
    let pb::ToolChoice { choice } = choice;
    Ok(match choice {
        Some(Choice::Mode(mode)) => mode_from_pb(known("tool choice", mode)?),
        Some(Choice::ToolName(name)) => ToolChoice::Tool(name),
        None => ToolChoice::Auto,
    })
}

/// Reads a tool choice mode.
pub fn mode_from_pb(mode: pb::ToolChoiceMode) -> ToolChoice {
    match mode {
        pb::ToolChoiceMode::Unspecified | pb::ToolChoiceMode::Auto => ToolChoice::Auto,
        pb::ToolChoiceMode::None => ToolChoice::None,
        pb::ToolChoiceMode::Required => ToolChoice::Required,
    }
}

fn format_to_pb(format: &ResponseFormat) -> pb::ResponseFormat {
    let ResponseFormat {
        schema,
        name,
        strict,
    } = format;
    pb::ResponseFormat {
        json_schema: schema.as_deref().map(schema_to_pb),
        name: name.clone(),
        strict: *strict,
    }
}

fn format_from_pb(format: pb::ResponseFormat) -> Result<ResponseFormat, DecodeError> {
    let pb::ResponseFormat {
        json_schema,
        name,
        strict,
    } = format;
    Ok(ResponseFormat {
        schema: json_schema.map(schema_from_pb).transpose()?,
        name,
        strict,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn generation_parameters_round_trip(generation in arbitrary::generation()) {
            prop_assert_eq!(from_pb(to_pb(&generation)), Ok(generation.clone()));
            prop_assert_eq!(from_stored(to_stored(&generation)), Ok(generation));
        }
    }

    #[test]
    fn generation_parameters_out_of_range_are_errors() {
        assert!(
            from_pb(pb::Generation {
                temperature: Some(2.5),
                ..Default::default()
            })
            .is_err()
        );
        assert!(
            from_pb(pb::Generation {
                top_p: Some(f64::NAN),
                ..Default::default()
            })
            .is_err()
        );
        assert!(
            from_pb(pb::Generation {
                top_k: Some(-1),
                ..Default::default()
            })
            .is_err()
        );
    }
}
