//! Generation settings: sampling, reasoning, tool choice and response format.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Generation settings. An unset field is taken from the layer below: first the turn, then the session, then the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Generation {
    pub temperature: Option<Temperature>,
    pub top_p: Option<TopP>,
    /// Sample only from this many of the most likely tokens.
    pub top_k: Option<u32>,
    /// Strings that end the response; empty means not set.
    pub stop_sequences: Vec<String>,
    /// Seed for reproducible sampling.
    pub seed: Option<i32>,
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Token budget for reasoning; takes precedence over the effort if the model supports a budget.
    pub reasoning_budget_tokens: Option<u32>,
    pub tool_choice: Option<ToolChoice>,
    /// Whether the model may make several tool calls in one response.
    pub parallel_tool_calls: Option<bool>,
    pub response_format: Option<ResponseFormat>,
    /// Options without a field here: a JSON object of objects keyed by kind of provider, as JSON text.
    pub provider_options: Option<String>,
}

impl Generation {
    /// The fields that are set, by their paths in the API.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> + use<> {
        let Self {
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
        } = self;
        let set = [
            ("generation.temperature", temperature.is_some()),
            ("generation.top_p", top_p.is_some()),
            ("generation.top_k", top_k.is_some()),
            ("generation.stop_sequences", !stop_sequences.is_empty()),
            ("generation.seed", seed.is_some()),
            ("generation.reasoning_effort", reasoning_effort.is_some()),
            ("generation.reasoning_budget_tokens", reasoning_budget_tokens.is_some()),
            ("generation.tool_choice", tool_choice.is_some()),
            ("generation.parallel_tool_calls", parallel_tool_calls.is_some()),
            ("generation.response_format", response_format.is_some()),
            ("generation.provider_options_json", provider_options.is_some()),
        ];
        set.into_iter().filter(|(_, set)| *set).map(|(path, _)| path)
    }

    /// These settings; unset fields are taken from `below`.
    #[must_use]
    pub fn or(&self, below: &Self) -> Self {
        let Self {
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
        } = self;
        let stop_sequences = if stop_sequences.is_empty() { &below.stop_sequences } else { stop_sequences };
        Self {
            temperature: temperature.or(below.temperature),
            top_p: top_p.or(below.top_p),
            top_k: top_k.or(below.top_k),
            stop_sequences: stop_sequences.clone(),
            seed: seed.or(below.seed),
            reasoning_effort: reasoning_effort.or(below.reasoning_effort),
            reasoning_budget_tokens: reasoning_budget_tokens.or(below.reasoning_budget_tokens),
            tool_choice: tool_choice.as_ref().or(below.tool_choice.as_ref()).cloned(),
            parallel_tool_calls: parallel_tool_calls.or(below.parallel_tool_calls),
            response_format: response_format.as_ref().or(below.response_format.as_ref()).cloned(),
            provider_options: provider_options.as_ref().or(below.provider_options.as_ref()).cloned(),
        }
    }

    /// Whether a field is set.
    pub fn has(&self, setting: Setting) -> bool {
        match setting {
            Setting::Temperature => self.temperature.is_some(),
            Setting::TopP => self.top_p.is_some(),
            Setting::TopK => self.top_k.is_some(),
            Setting::StopSequences => !self.stop_sequences.is_empty(),
            Setting::Seed => self.seed.is_some(),
            Setting::ReasoningEffort => self.reasoning_effort.is_some(),
            Setting::ReasoningBudget => self.reasoning_budget_tokens.is_some(),
            Setting::ToolChoice => self.tool_choice.is_some(),
            Setting::ParallelToolCalls => self.parallel_tool_calls.is_some(),
            Setting::ResponseFormat => self.response_format.is_some(),
            Setting::ProviderTools => false,
        }
    }

    /// Whether a tool call is forced.
    pub fn forces_call(&self) -> bool {
        self.tool_choice.as_ref().is_some_and(ToolChoice::is_forced)
    }

    /// Whether the response must follow a JSON schema.
    pub fn has_schema(&self) -> bool {
        let format = self.response_format.as_ref();
        format.is_some_and(|format| format.schema.is_some())
    }

    /// Unsets a field.
    pub fn clear(&mut self, setting: Setting) {
        match setting {
            Setting::Temperature => self.temperature = None,
            Setting::TopP => self.top_p = None,
            Setting::TopK => self.top_k = None,
            Setting::StopSequences => self.stop_sequences.clear(),
            Setting::Seed => self.seed = None,
            Setting::ReasoningEffort => self.reasoning_effort = None,
            Setting::ReasoningBudget => self.reasoning_budget_tokens = None,
            Setting::ToolChoice => self.tool_choice = None,
            Setting::ParallelToolCalls => self.parallel_tool_calls = None,
            Setting::ResponseFormat => self.response_format = None,
            Setting::ProviderTools => {}
        }
    }
}

/// A field of [`Generation`], or the provider tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// `temperature`.
    Temperature,
    /// `top_p`.
    TopP,
    /// `top_k`.
    TopK,
    /// `stop_sequences`.
    StopSequences,
    /// `seed`.
    Seed,
    /// `reasoning_effort`.
    ReasoningEffort,
    /// `reasoning_budget_tokens`.
    ReasoningBudget,
    /// `tool_choice`.
    ToolChoice,
    /// `parallel_tool_calls`.
    ParallelToolCalls,
    /// `response_format`.
    ResponseFormat,
    /// Provider tools, which are part of the turn's tools, not of these settings.
    ProviderTools,
}

impl Setting {
    /// The field's path in a session or turn, as in the API.
    pub fn path(self) -> &'static str {
        match self {
            Self::Temperature => "generation.temperature",
            Self::TopP => "generation.top_p",
            Self::TopK => "generation.top_k",
            Self::StopSequences => "generation.stop_sequences",
            Self::Seed => "generation.seed",
            Self::ReasoningEffort => "generation.reasoning_effort",
            Self::ReasoningBudget => "generation.reasoning_budget_tokens",
            Self::ToolChoice => "generation.tool_choice",
            Self::ParallelToolCalls => "generation.parallel_tool_calls",
            Self::ResponseFormat => "generation.response_format",
            Self::ProviderTools => "tools.provider_tools",
        }
    }
}

/// A setting that the model does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    pub setting: Setting,
    /// The reason, in one sentence.
    pub why: String,
}

/// Sampling temperature, 0 to 2.
pub type Temperature = UpTo<2>;

/// Probability mass for nucleus sampling, 0 to 1.
pub type TopP = UpTo<1>;

/// A number from 0 to `MOST`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct UpTo<const MOST: u8>(f64);

impl<const MOST: u8> UpTo<MOST> {
    /// Returns `None` if the number is out of range or NaN.
    pub fn new(number: f64) -> Option<Self> {
        (0.0..=f64::from(MOST)).contains(&number).then_some(Self(number))
    }

    /// The number, clamped to the range.
    pub const fn clamped(number: f64) -> Self {
        Self(number.clamp(0.0, MOST as f64))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<const MOST: u8> TryFrom<f64> for UpTo<MOST> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        Self::new(number).ok_or_else(|| format!("{number} is not between 0 and {MOST}"))
    }
}

impl<const MOST: u8> From<UpTo<MOST>> for f64 {
    fn from(number: UpTo<MOST>) -> Self {
        number.0
    }
}

/// The number is never NaN.
impl<const MOST: u8> Eq for UpTo<MOST> {}

impl<const MOST: u8> fmt::Debug for UpTo<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reasoning effort, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// No reasoning.
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    /// The model's maximum.
    Max,
}

impl ReasoningEffort {
    /// The nearest of the given levels, the lower one of two equally near. `None` (no reasoning) is only mapped to and
    /// from itself if there is another choice. Returns `None` if `levels` is empty.
    pub fn nearest_of(self, levels: &[Self]) -> Option<Self> {
        let distance = |level: &&Self| {
            let switches = (**level == Self::None) != (self == Self::None);
            (switches, (**level as u8).abs_diff(self as u8), **level)
        };
        levels.iter().min_by_key(distance).copied()
    }
}

/// Whether and which tools the model must call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool calls.
    None,
    /// At least one tool call.
    Required,
    /// A call of this tool.
    Tool(String),
}

impl ToolChoice {
    /// Whether the model must call a tool.
    pub fn is_forced(&self) -> bool {
        match self {
            Self::Required | Self::Tool(_) => true,
            Self::Auto | Self::None => false,
        }
    }
}

/// Requests a response in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseFormat {
    /// The schema as JSON text. `None` means any JSON object.
    pub schema: Option<String>,
    pub name: String,
    /// Enforce the schema exactly. `None` means if the provider supports it.
    pub strict: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_effort_is_mapped_to_the_nearest_supported_level() {
        use ReasoningEffort::{High, Low, Max, Medium, Minimal, None as Not, Xhigh};
        let table: [(&[ReasoningEffort], ReasoningEffort, Option<ReasoningEffort>); 12] = [
            (&[], High, None),
            (&[Low, Medium, High], Medium, Some(Medium)),
            (&[Low, High], Medium, Some(Low)),
            (&[High, Low], Medium, Some(Low)),
            (&[Low, Medium, High], Max, Some(High)),
            (&[Low, Medium, High], Minimal, Some(Low)),
            (&[Low, Medium, High], Not, Some(Low)),
            (&[Not, High], Minimal, Some(High)),
            (&[Not, High], Not, Some(Not)),
            (&[Not], Max, Some(Not)),
            (&[High, Xhigh, Max], Low, Some(High)),
            (&[Minimal, High], Medium, Some(High)),
        ];
        for (levels, effort, expected) in table {
            assert_eq!(effort.nearest_of(levels), expected, "{levels:?} {effort:?}");
        }
    }

    #[test]
    fn generation_numbers_are_clamped_to_their_ranges() {
        for (number, fits) in [(0.0, true), (-0.0, true), (2.0, true), (2.1, false), (-0.1, false), (f64::NAN, false)] {
            assert_eq!(Temperature::new(number).is_some(), fits, "{number}");
        }
        assert_eq!(TopP::new(1.0).map(TopP::get), Some(1.0));
        assert_eq!(TopP::new(f64::INFINITY), None);
    }

    #[test]
    fn each_set_generation_field_overrides_the_layer_below() {
        let format = |name: &str| Some(ResponseFormat { schema: None, name: name.to_owned(), strict: Some(true) });
        let below = Generation {
            temperature: Temperature::new(1.0),
            top_p: TopP::new(0.5),
            top_k: Some(1),
            stop_sequences: vec!["a".to_owned(), "b".to_owned()],
            seed: Some(1),
            reasoning_effort: Some(ReasoningEffort::Low),
            reasoning_budget_tokens: Some(1),
            tool_choice: Some(ToolChoice::Required),
            parallel_tool_calls: Some(true),
            response_format: format("below"),
            provider_options: Some("{}".to_owned()),
        };
        assert_eq!(below.paths().count(), 11, "each field has a path");
        assert_eq!(Generation::default().paths().count(), 0);
        let above = Generation {
            temperature: Temperature::new(0.0),
            top_p: TopP::new(0.0),
            top_k: Some(0),
            stop_sequences: vec!["c".to_owned()],
            seed: Some(0),
            reasoning_effort: Some(ReasoningEffort::None),
            reasoning_budget_tokens: Some(0),
            tool_choice: Some(ToolChoice::Auto),
            parallel_tool_calls: Some(false),
            response_format: format("above"),
            provider_options: Some("{\"a\":{}}".to_owned()),
        };
        let nothing = Generation::default();
        assert_eq!(above.or(&below), above);
        assert_eq!(nothing.or(&below), below);
        assert_eq!(above.or(&nothing), above);
    }
}
