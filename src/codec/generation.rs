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
    field::{Field, choices, known, messages},
};

choices! {
    ReasoningEffort = ReasoningEffort { None, Minimal, Low, Medium, High, Xhigh, Max }
}

messages! {
    Generation = Generation {
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
        provider_options = provider_options_json,
    }
    ResponseFormat = ResponseFormat { schema = json_schema, name, strict, }
}

impl<const MOST: u8> Field<f64> for UpTo<MOST> {
    fn to_field(&self) -> f64 {
        self.get()
    }

    fn from_field(name: &'static str, field: f64) -> Result<Self, DecodeError> {
        let outside = || DecodeError::new(name, format_args!("{field} is out of range"));
        Self::new(field).ok_or_else(outside)
    }
}

impl Field<pb::ToolChoice> for ToolChoice {
    fn to_field(&self) -> pb::ToolChoice {
        let mode = |mode: pb::ToolChoiceMode| Choice::Mode(mode.into());
        let choice = match self {
            Self::Auto => mode(pb::ToolChoiceMode::Auto),
            Self::None => mode(pb::ToolChoiceMode::None),
            Self::Required => mode(pb::ToolChoiceMode::Required),
            Self::Tool(name) => Choice::ToolName(name.clone()),
        };
        pb::ToolChoice { choice: Some(choice) }
    }

    fn from_field(name: &'static str, field: pb::ToolChoice) -> Result<Self, DecodeError> {
        let pb::ToolChoice { choice } = field;
        Ok(match choice {
            Some(Choice::Mode(mode)) => match known(name, mode)? {
                pb::ToolChoiceMode::Unspecified | pb::ToolChoiceMode::Auto => Self::Auto,
                pb::ToolChoiceMode::None => Self::None,
                pb::ToolChoiceMode::Required => Self::Required,
            },
            Some(Choice::ToolName(name)) => Self::Tool(name),
            None => Self::Auto,
        })
    }
}

/// A schema is stored as JSON text.
impl Field<pb::JsonSchema> for String {
    fn to_field(&self) -> pb::JsonSchema {
        pb::JsonSchema { schema: Some(pb::json_schema::Schema::Json(self.clone())) }
    }

    fn from_field(name: &'static str, field: pb::JsonSchema) -> Result<Self, DecodeError> {
        let pb::JsonSchema { schema } = field;
        match schema {
            Some(pb::json_schema::Schema::Json(json)) => Ok(json),
            Some(pb::json_schema::Schema::Value(_)) | None => Err(DecodeError::new(name, "it is not JSON")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{
        arbitrary,
        field::{round_trip, unless_default},
    };

    proptest! {
        #[test]
        fn generation_parameters_round_trip(generation in arbitrary::generation()) {
            prop_assert_eq!(round_trip::<_, pb::Generation>(&generation), Ok(generation.clone()));
            let stored: Option<pb::Generation> = unless_default::to_field(&generation);
            prop_assert_eq!(unless_default::from_field("generation", stored), Ok(generation));
        }
    }

    #[test]
    fn generation_parameters_out_of_range_are_errors() {
        let from_sent = |generation: pb::Generation| Generation::from_field("generation", generation);
        assert!(from_sent(pb::Generation { temperature: Some(2.5), ..Default::default() }).is_err());
        assert!(from_sent(pb::Generation { top_p: Some(f64::NAN), ..Default::default() }).is_err());
        assert!(from_sent(pb::Generation { top_k: Some(-1), ..Default::default() }).is_err());
    }
}
