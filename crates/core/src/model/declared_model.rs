//! A model's properties as declared by the operator.

use serde::{Deserialize, Serialize};

use super::generation::ReasoningEffort;
use crate::settings::{ByName, Kind};

/// A model's properties as declared by the operator in `[providers.NAME.models."MODEL"]` of the configuration. Absent
/// fields are taken from the shipped table, if it has the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeclaredModel {
    /// Name for users.
    pub display_name: Option<String>,
    /// Other names of this model.
    pub aliases: Vec<String>,
    /// Size of the window in tokens.
    pub context_window: Option<u32>,
    /// Maximum tokens of one response.
    pub max_output: Option<u32>,
    /// MIME types that the model accepts in addition to text, such as `image/*`.
    #[serde(rename = "input_media_types")]
    pub input_media: Option<Vec<String>>,
    /// Whether the model supports tool calls.
    #[serde(rename = "supports_tools")]
    pub tools: Option<bool>,
    /// Whether the model can make several tool calls in one response.
    #[serde(rename = "supports_parallel_tool_calls")]
    pub parallel_tools: Option<bool>,
    /// Whether the model supports output that conforms to a JSON schema.
    #[serde(rename = "supports_json_schema")]
    pub json_schema: Option<bool>,
    /// Supported levels of reasoning effort.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// Price of a token read from the cache, in percent of the price of an uncached token.
    pub cache_read_percent: Option<u32>,
    /// Price of a token written to the cache, in percent of the price of an uncached token. `None` means 100.
    pub cache_write_percent: Option<u32>,
}

impl ByName for DeclaredModel {
    fn kind_by_name() -> Kind {
        Kind::Tables
    }
}
