//! What is known of a model, and who said it.

use jiff::Timestamp;

use super::discovery::{ListedModel, Thinking};
use crate::model::{
    CachePrices, Declared, Generation, Media, Role,
    generation::{ReasoningEffort, Setting, Unsupported},
};

/// A model that sessions can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name within the provider.
    pub name: String,
    /// Name for people.
    pub display_name: String,
    /// Other names within the provider that mean this model.
    pub aliases: Vec<String>,
    /// The whole window. `None` means not known.
    pub context_window: Option<Limit>,
    /// Most tokens of one answer. `None` means not known.
    pub max_output: Option<Limit>,
    /// MIME types it takes beside text, such as `image/*`.
    pub input_media: Vec<String>,
    /// Whether it can call tools; when not, it is never sent any.
    pub supports_tools: bool,
    /// Whether it can make several calls at once; `None` if not known.
    pub supports_parallel_tools: Option<bool>,
    /// Whether it can hold to a JSON schema; `None` if not known.
    pub supports_json_schema: Option<bool>,
    /// Whether it takes a temperature. `None` means not known.
    pub takes_temperature: Option<bool>,
    /// Levels of thinking that it has; empty if it is known to have none, `None` if not known.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// How it can be asked to think; empty if it is known not to, `None` if not known.
    pub thinking: Option<Vec<Thinking>>,
    /// What the service takes for what its cache holds. `None` means not known.
    pub cache_prices: Option<CachePrices>,
    /// Where the entry comes from.
    pub source: Source,
    /// When its service last listed it. `None` means it did not.
    pub discovered: Option<Timestamp>,
}

/// A number about a model, and who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Tokens.
    pub tokens: u32,
    /// Who said it.
    pub source: Source,
}

/// Where a fact about a model comes from. Later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Not known.
    Assumed,
    /// The table shipped with contextd.
    Shipped,
    /// The service's own list.
    Discovered,
    /// The server's configuration.
    Configured,
}

/// A setting, whether it is refused, and why in a sentence.
pub(in crate::provider) type Refusal = (Setting, bool, &'static str);

/// The settings that are refused, each once, for its first reason.
pub(in crate::provider) fn refused(table: impl IntoIterator<Item = Refusal>) -> Vec<Unsupported> {
    let mut unsupported: Vec<Unsupported> = Vec::new();
    for (setting, applies, why) in table {
        if applies && unsupported.iter().all(|known| known.setting != setting) {
            unsupported.push(Unsupported {
                setting,
                why: why.to_owned(),
            });
        }
    }
    unsupported
}

impl Limit {
    /// A number and who said it.
    pub fn new(tokens: u32, source: Source) -> Self {
        Self { tokens, source }
    }

    /// No answer is longer than the window.
    fn within(self, window: Option<Self>) -> Self {
        window
            .filter(|window| window.tokens < self.tokens)
            .unwrap_or(self)
    }
}

impl ModelInfo {
    /// A model of which nothing is known but its name. That it can call tools is assumed: most can,
    /// and one that cannot says so.
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
            takes_temperature: None,
            reasoning_efforts: None,
            thinking: None,
            cache_prices: None,
            source: Source::Assumed,
            discovered: None,
        }
    }

    /// Which of these settings the model is known not to take.
    pub fn cannot_take(&self, wanted: &Generation) -> Vec<Unsupported> {
        refused(self.refusals(wanted))
    }

    /// The settings that it may be known not to take.
    pub(in crate::provider) fn refusals(&self, wanted: &Generation) -> [Refusal; 4] {
        let no_effort = self.reasoning_efforts.as_ref().is_some_and(Vec::is_empty);
        let schema = wanted
            .response_format
            .as_ref()
            .is_some_and(|format| format.schema.is_some());
        [
            (
                Setting::Temperature,
                wanted.temperature.is_some() && self.takes_temperature == Some(false),
                "The model takes no temperature.",
            ),
            (
                Setting::ReasoningEffort,
                wanted.reasoning_effort.is_some() && no_effort,
                "The model has no levels of reasoning.",
            ),
            (
                Setting::ParallelToolCalls,
                wanted.parallel_tool_calls.is_some() && self.supports_parallel_tools == Some(false),
                "The model never calls several tools at once.",
            ),
            (
                Setting::ResponseFormat,
                schema && self.supports_json_schema == Some(false),
                "The model cannot hold an answer to a schema.",
            ),
        ]
    }

    /// These settings, the effort as the nearest level that it is known to have.
    #[must_use]
    pub fn fitted(&self, wanted: &Generation) -> Generation {
        let nearest = |effort: ReasoningEffort| {
            self.reasoning_efforts
                .as_deref()
                .and_then(|levels| effort.nearest_of(levels))
                .unwrap_or(effort)
        };
        Generation {
            reasoning_effort: wanted.reasoning_effort.map(nearest),
            ..wanted.clone()
        }
    }

    /// Why it is not given a medium. `None` means it takes such types from whoever speaks.
    pub fn cannot_read(&self, media: &Media, role: Role) -> Option<String> {
        match role {
            Role::System => return Some("Instructions have text only.".to_owned()),
            // What a model made itself: whether it goes back is the service's rule.
            Role::Assistant => return None,
            Role::User | Role::Tool => {}
        }
        let takes = self.input_media.iter().any(|pattern| media.is(pattern));
        (!takes).then(|| format!("The model is not known to take {}.", media.essence()))
    }

    /// The same with what the service itself says in its list, which wins over what is shipped. Its
    /// window does so too where it is smaller: the service knows what it takes.
    #[must_use]
    pub fn listed(self, at: Timestamp, listed: &ListedModel) -> Self {
        let ListedModel {
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
        } = listed.clone();
        let limit = |tokens| Limit::new(tokens, Source::Discovered);
        let context_window = context_window.map(limit).or(self.context_window);
        let max_output = max_output.map(limit).or(self.max_output);
        Self {
            name: self.name,
            display_name: display_name.unwrap_or(self.display_name),
            aliases: self.aliases,
            context_window,
            max_output: max_output.map(|most| most.within(context_window)),
            input_media: input_media.unwrap_or(self.input_media),
            supports_tools: tools.unwrap_or(self.supports_tools),
            supports_parallel_tools: parallel_tools.or(self.supports_parallel_tools),
            supports_json_schema: json_schema.or(self.supports_json_schema),
            takes_temperature: temperature.or(self.takes_temperature),
            reasoning_efforts: reasoning_efforts.or(self.reasoning_efforts),
            thinking: thinking.or(self.thinking),
            cache_prices: self.cache_prices,
            source: Source::Discovered,
            discovered: Some(at),
        }
    }

    /// The same with what an operator says, which wins.
    #[must_use]
    pub fn with(self, declared: &Declared) -> Self {
        let Declared {
            display_name,
            aliases,
            context_window,
            max_output,
            input_media,
            tools,
            parallel_tools,
            json_schema,
            reasoning_efforts,
            cache_read_percent,
            cache_write_percent,
        } = declared.clone();
        let prices = |read| CachePrices::new(read, cache_write_percent);
        let limit = |tokens| Limit::new(tokens, Source::Configured);
        Self {
            name: self.name,
            display_name: display_name.unwrap_or(self.display_name),
            aliases,
            context_window: context_window.map(limit).or(self.context_window),
            max_output: max_output.map(limit).or(self.max_output),
            input_media: input_media.unwrap_or(self.input_media),
            supports_tools: tools.unwrap_or(self.supports_tools),
            supports_parallel_tools: parallel_tools.or(self.supports_parallel_tools),
            supports_json_schema: json_schema.or(self.supports_json_schema),
            takes_temperature: self.takes_temperature,
            reasoning_efforts: reasoning_efforts.or(self.reasoning_efforts),
            thinking: self.thinking,
            cache_prices: cache_read_percent.map(prices).or(self.cache_prices),
            source: Source::Configured,
            discovered: self.discovered,
        }
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
            model
                .cannot_take(wanted)
                .into_iter()
                .map(|it| it.setting)
                .collect::<Vec<_>>()
        };
        let unknown = ModelInfo::unknown("m");
        assert_eq!(
            (refused(&unknown, &wanted), unknown.fitted(&wanted)),
            (vec![], wanted.clone())
        );
        let all = Declared {
            reasoning_efforts: Some(vec![]),
            parallel_tools: Some(false),
            json_schema: Some(false),
            ..Declared::default()
        };
        let none = unknown.clone().with(&all);
        assert_eq!(
            refused(&none, &wanted),
            [
                Setting::ReasoningEffort,
                Setting::ParallelToolCalls,
                Setting::ResponseFormat
            ]
        );
        assert_eq!(refused(&none, &Generation::default()), []);
        let json = Generation {
            response_format: Some(schema(None)),
            ..Generation::default()
        };
        assert_eq!(
            refused(&none, &json),
            [],
            "JSON without a schema is another matter"
        );
        let some = Declared {
            reasoning_efforts: Some(vec![ReasoningEffort::High]),
            ..Declared::default()
        };
        let some = unknown.with(&some);
        assert_eq!(
            some.fitted(&wanted).reasoning_effort,
            Some(ReasoningEffort::High)
        );
        assert_eq!(some.fitted(&Generation::default()), Generation::default());
    }
}
