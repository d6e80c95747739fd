//! What an operator says of a model.

use serde::{Deserialize, Serialize};

use super::generation::ReasoningEffort;

/// What an operator says of a model: `[providers.NAME.models."MODEL"]` of the configuration. What
/// is absent is taken from the shipped table, where that has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Declared {
    /// Name for people.
    pub display_name: Option<String>,
    /// Other names that mean this model.
    pub aliases: Vec<String>,
    /// Tokens of the whole window.
    pub context_window: Option<u32>,
    /// Most tokens of one answer.
    pub max_output: Option<u32>,
    /// MIME types it takes beside text, such as `image/*`.
    #[serde(rename = "input_media_types")]
    pub input_media: Option<Vec<String>>,
    /// Whether it can call tools.
    #[serde(rename = "supports_tools")]
    pub tools: Option<bool>,
    /// Whether it can make several calls at once.
    #[serde(rename = "supports_parallel_tool_calls")]
    pub parallel_tools: Option<bool>,
    /// Whether it can hold to a JSON schema.
    #[serde(rename = "supports_json_schema")]
    pub json_schema: Option<bool>,
    /// Levels of thinking that it has.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// Percent of a token's price that the service takes for one that its cache holds.
    pub cache_read_percent: Option<u32>,
    /// The same of one that it writes to its cache. Absent: it takes the whole price for it.
    pub cache_write_percent: Option<u32>,
}
