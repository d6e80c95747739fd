//! What is known about a model, and from which source.

use jiff::Timestamp;

use super::{
    discovery::{ModelFacts, Thinking},
    refusals::{self as why, SettingCheck, rejected},
};
use crate::model::{
    CachePrices, DeclaredModel, Generation, Media, Role,
    generation::{ReasoningEffort, Setting, Unsupported},
};

/// A model that sessions can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Name of the model within its provider.
    pub name: String,
    /// Human-readable name.
    pub display_name: String,
    /// Other names of this model within its provider.
    pub aliases: Vec<String>,
    /// Size of the whole context window. `None` if unknown.
    pub context_window: Option<Limit>,
    /// Limit on the tokens of one response. `None` if unknown.
    pub max_output: Option<Limit>,
    /// MIME types that the model accepts in addition to text, such as `image/*`.
    pub input_media: Vec<String>,
    /// Whether the model can call tools. If not, no tools are sent.
    pub supports_tools: bool,
    /// Whether the model can make several tool calls in parallel. `None` if unknown.
    pub supports_parallel_tools: Option<bool>,
    /// Whether the model can follow a JSON schema. `None` if unknown.
    pub supports_json_schema: Option<bool>,
    /// Whether the model accepts a temperature. `None` if unknown.
    pub supports_temperature: Option<bool>,
    /// The model's levels of reasoning effort. Empty if it is known to have none, `None` if
    /// unknown.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// The ways to request reasoning. Empty if the model is known not to reason, `None` if unknown.
    pub thinking: Option<Vec<Thinking>>,
    /// Prices for reads and writes of the prompt cache. `None` if unknown.
    pub cache_prices: Option<CachePrices>,
    pub source: Source,
    /// When the service last listed the model. `None` if it never did.
    pub discovered: Option<Timestamp>,
}

/// A limit of a model, in tokens, and the source of the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub tokens: u32,
    pub source: Source,
}

/// The source of a fact about a model. Later variants take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The fact is unknown and a default is assumed.
    Assumed,
    /// The table shipped with contextd.
    Shipped,
    /// The service's model list.
    Discovered,
    /// The server's configuration.
    Configured,
}

impl Limit {
    /// Creates a limit from a number of tokens and its source.
    pub fn new(tokens: u32, source: Source) -> Self {
        Self { tokens, source }
    }

    /// Caps the limit at the context window: no response is longer than the window.
    fn within(self, window: Option<Self>) -> Self {
        window.filter(|window| window.tokens < self.tokens).unwrap_or(self)
    }
}

impl ModelInfo {
    /// A model of which only the name is known. It is assumed to support tools: most models do, and
    /// a service rejects the request if the model does not.
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            display_name: name.to_owned(),
            aliases: Vec::new(),
            context_window: None,
            max_output: None,
            input_media: Vec::new(),
            supports_tools: true,
            supports_parallel_tools: None,
            supports_json_schema: None,
            supports_temperature: None,
            reasoning_efforts: None,
            thinking: None,
            cache_prices: None,
            source: Source::Assumed,
            discovered: None,
        }
    }

    /// The settings in `wanted` that the model is known not to accept.
    pub fn unsupported_settings(&self, wanted: &Generation) -> Vec<Unsupported> {
        rejected(wanted, self.refusals(wanted))
    }

    /// The settings that the model is known not to accept in the form in which they are wanted.
    pub(super) fn refusals(&self, wanted: &Generation) -> [SettingCheck; 4] {
        let no_temperature = self.supports_temperature == Some(false);
        let no_effort = self.reasoning_efforts.as_ref().is_some_and(Vec::is_empty);
        let one_call = self.supports_parallel_tools == Some(false);
        let no_schema = wanted.has_schema() && self.supports_json_schema == Some(false);
        [
            (Setting::Temperature, no_temperature, why::TEMPERATURE),
            (Setting::ReasoningEffort, no_effort, why::EFFORT),
            (Setting::ParallelToolCalls, one_call, why::PARALLEL),
            (Setting::ResponseFormat, no_schema, why::SCHEMA),
        ]
    }

    /// The model's levels of reasoning effort, if they are known and there are any.
    pub(super) fn effort_levels(&self) -> Option<&[ReasoningEffort]> {
        let known = self.reasoning_efforts.as_deref();
        known.filter(|levels| !levels.is_empty())
    }

    /// Returns the settings with the reasoning effort replaced by the nearest level that the model
    /// is known to have.
    #[must_use]
    pub fn nearest_supported(&self, wanted: &Generation) -> Generation {
        let levels = self.reasoning_efforts.as_deref().unwrap_or_default();
        let nearest = |effort: ReasoningEffort| effort.nearest_of(levels).unwrap_or(effort);
        Generation { reasoning_effort: wanted.reasoning_effort.map(nearest), ..wanted.clone() }
    }

    /// Why the model cannot take this media in a message of this role. Returns `None` if it can.
    pub fn unsupported_media(&self, media: &Media, role: Role) -> Option<String> {
        match role {
            Role::System => return Some("System messages can contain only text.".to_owned()),
            // Media that a model generated: whether it is sent back is a rule of the service.
            Role::Assistant => return None,
            Role::User | Role::Tool => {}
        }
        let takes = self.input_media.iter().any(|pattern| media.is(pattern));
        (!takes).then(|| format!("The model is not known to accept {}.", media.essence()))
    }

    /// Merges facts from a source, which take precedence over those known so far.
    pub(super) fn merged(self, facts: ModelFacts, source: Source) -> Self {
        let ModelFacts {
            display_name,
            context_window,
            max_output,
            input_media,
            tools,
            parallel_tools,
            json_schema,
            temperature,
            reasoning_efforts,
            thinking,
            cache_read,
            cache_write,
        } = facts;
        let limit = |tokens| Limit::new(tokens, source);
        let prices = |read| CachePrices::new(read, cache_write);
        Self {
            display_name: display_name.unwrap_or(self.display_name),
            context_window: context_window.map(limit).or(self.context_window),
            max_output: max_output.map(limit).or(self.max_output),
            input_media: input_media.unwrap_or(self.input_media),
            supports_tools: tools.unwrap_or(self.supports_tools),
            supports_parallel_tools: parallel_tools.or(self.supports_parallel_tools),
            supports_json_schema: json_schema.or(self.supports_json_schema),
            supports_temperature: temperature.or(self.supports_temperature),
            reasoning_efforts: reasoning_efforts.or(self.reasoning_efforts),
            thinking: thinking.or(self.thinking),
            cache_prices: cache_read.map(prices).or(self.cache_prices),
            source,
            ..self
        }
    }

    /// Merges the facts from the service's model list. They take precedence over the shipped facts,
    /// even where the context window is smaller: the service knows its own limit.
    #[must_use]
    pub fn listed(self, at: Timestamp, listed: &ModelFacts) -> Self {
        let merged = self.merged(listed.clone(), Source::Discovered);
        let max_output = merged.max_output.map(|most| most.within(merged.context_window));
        Self { max_output, discovered: Some(at), ..merged }
    }

    /// Merges the facts that an operator configured. They take precedence over all others.
    #[must_use]
    pub fn with(self, declared: &DeclaredModel) -> Self {
        let DeclaredModel {
            display_name,
            aliases,
            context_window,
            max_output,
            input_media,
            tools,
            parallel_tools,
            json_schema,
            reasoning_efforts,
            cache_read_percent: cache_read,
            cache_write_percent: cache_write,
        } = declared.clone();
        let facts = ModelFacts {
            display_name,
            context_window,
            max_output,
            input_media,
            tools,
            parallel_tools,
            json_schema,
            reasoning_efforts,
            cache_read,
            cache_write,
            ..ModelFacts::default()
        };
        Self { aliases, ..self.merged(facts, Source::Configured) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_facts_decide_which_parameters_are_sent() {
        use crate::model::generation::ResponseFormat;
        let schema = |schema: Option<&str>| ResponseFormat {
            schema: schema.map(str::to_owned),
            name: "answer".to_owned(),
            strict: None,
        };
        let wanted = Generation {
            reasoning_effort: Some(ReasoningEffort::Max),
            parallel_tool_calls: Some(true),
            response_format: Some(schema(Some("{}"))),
            ..Generation::default()
        };
        let refused = |model: &ModelInfo, wanted: &Generation| {
            model.unsupported_settings(wanted).into_iter().map(|it| it.setting).collect::<Vec<_>>()
        };
        let unknown = ModelInfo::unknown("m");
        assert_eq!((refused(&unknown, &wanted), unknown.nearest_supported(&wanted)), (vec![], wanted.clone()));
        let all = DeclaredModel {
            reasoning_efforts: Some(vec![]),
            parallel_tools: Some(false),
            json_schema: Some(false),
            ..DeclaredModel::default()
        };
        let none = unknown.clone().with(&all);
        assert_eq!(
            refused(&none, &wanted),
            [Setting::ReasoningEffort, Setting::ParallelToolCalls, Setting::ResponseFormat]
        );
        assert_eq!(refused(&none, &Generation::default()), []);
        let json = Generation { response_format: Some(schema(None)), ..Generation::default() };
        assert_eq!(refused(&none, &json), [], "JSON without a schema is another matter");
        let some = DeclaredModel { reasoning_efforts: Some(vec![ReasoningEffort::High]), ..DeclaredModel::default() };
        let some = unknown.with(&some);
        assert_eq!(some.nearest_supported(&wanted).reasoning_effort, Some(ReasoningEffort::High));
        assert_eq!(some.nearest_supported(&Generation::default()), Generation::default());
    }
}
