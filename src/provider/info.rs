//! What is known of a model, and who said it.

use crate::model::{
    Generation, Media, Role,
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
    /// The whole window; none: not known.
    pub context_window: Option<Limit>,
    /// Most tokens of one answer; none: not known.
    pub max_output: Option<Limit>,
    /// MIME types it takes beside text, such as `image/*`.
    pub input_media: Vec<String>,
    /// Whether it can call tools; when not, it is never told of any.
    pub supports_tools: bool,
    /// Whether it is known to make several calls at once.
    pub supports_parallel_tools: bool,
    /// Whether it is known to hold to a JSON schema.
    pub supports_json_schema: bool,
    /// Whether it takes a temperature; none: not known.
    pub takes_temperature: Option<bool>,
    /// Levels of thinking that it is known to have.
    pub reasoning_efforts: Vec<ReasoningEffort>,
    /// Where the entry comes from.
    pub source: Source,
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
    /// Nobody said it.
    Assumed,
    /// The table shipped with contextd.
    Shipped,
    /// The server's configuration.
    Configured,
}

/// What an operator says of a model. What is none or empty is left to the shipped table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// Name for people.
    pub display_name: Option<String>,
    /// Other names that mean this model.
    pub aliases: Vec<String>,
    /// The whole window in tokens.
    pub context_window: Option<u32>,
    /// Most tokens of one answer.
    pub max_output: Option<u32>,
    /// MIME types it takes beside text.
    pub input_media: Option<Vec<String>>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
    /// Whether it can make several calls at once.
    pub parallel_tools: Option<bool>,
    /// Whether it can hold to a JSON schema.
    pub json_schema: Option<bool>,
    /// Levels of thinking that it has.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
}

impl Limit {
    /// A number and who said it.
    pub fn new(tokens: u32, source: Source) -> Self {
        Self { tokens, source }
    }
}

impl ModelInfo {
    /// A model of which nothing is known but its name. That it can call tools is assumed: most can, and one that cannot says so.
    pub fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            display_name: name.to_owned(),
            aliases: Vec::new(),
            context_window: None,
            max_output: None,
            input_media: Vec::new(),
            supports_tools: true,
            supports_parallel_tools: false,
            supports_json_schema: false,
            takes_temperature: None,
            reasoning_efforts: Vec::new(),
            source: Source::Assumed,
        }
    }

    /// What of these wishes it is known not to take.
    pub fn cannot_take(&self, wanted: &Generation) -> Vec<Unsupported> {
        let refused = wanted.temperature.is_some() && self.takes_temperature == Some(false);
        let why = || "The model takes no temperature.".to_owned();
        refused.then(|| Unsupported { setting: Setting::Temperature, why: why() }).into_iter().collect()
    }

    /// Why it is not given a medium; none: it takes such types from whoever speaks.
    pub fn cannot_read(&self, media: &Media, role: Role) -> Option<String> {
        match role {
            Role::System => return Some("Instructions have text only.".to_owned()),
            Role::User | Role::Assistant | Role::Tool => {}
        }
        let takes = self.input_media.iter().any(|pattern| media.is(pattern));
        (!takes).then(|| format!("The model is not known to take {}.", media.essence()))
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
        } = declared.clone();
        let limit = |tokens| Limit::new(tokens, Source::Configured);
        Self {
            name: self.name,
            display_name: display_name.unwrap_or(self.display_name),
            aliases,
            context_window: context_window.map(limit).or(self.context_window),
            max_output: max_output.map(limit).or(self.max_output),
            input_media: input_media.unwrap_or(self.input_media),
            supports_tools: tools.unwrap_or(self.supports_tools),
            supports_parallel_tools: parallel_tools.unwrap_or(self.supports_parallel_tools),
            supports_json_schema: json_schema.unwrap_or(self.supports_json_schema),
            takes_temperature: self.takes_temperature,
            reasoning_efforts: reasoning_efforts.unwrap_or(self.reasoning_efforts),
            source: Source::Configured,
        }
    }
}
