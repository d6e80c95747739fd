//! Which settings are rejected, and the sentences that tell the host why a setting or a media part
//! is. They are the same for every protocol.

use crate::model::{
    Generation,
    generation::{Setting, Unsupported},
};

/// A setting, whether the model or its service rejects it, and the reason as a sentence.
pub(super) type SettingCheck = (Setting, bool, &'static str);

pub(super) const ALWAYS_REASONS: &str = "The model does not support disabling reasoning.";
pub(super) const BUDGET: &str = "The model does not accept a reasoning budget.";
pub(super) const EFFORT: &str = "The model does not support a reasoning effort.";
pub(super) const EFFORT_IF_FORCED: &str = "The model does not support reasoning if a tool call is required.";
pub(super) const FEWER_STOPS: &str = "The service accepts fewer stop sequences.";
pub(super) const FORCED: &str = "The model cannot be forced to call a tool.";
pub(super) const FORCED_REASONING: &str = "A tool call cannot be required with reasoning enabled.";
pub(super) const JSON_WITH_TOOLS: &str = "The model does not support JSON output together with tools.";
pub(super) const NO_STOPS: &str = "The model does not accept stop sequences.";
pub(super) const NO_REASONING: &str = "The model does not support reasoning.";
pub(super) const NO_TEMPERATURE: &str = "Reasoning models do not accept a temperature.";
pub(super) const NO_TOP_P: &str = "Reasoning models do not accept top_p.";
pub(super) const ONE_CALL: &str = "The service does not support disabling parallel tool calls.";
pub(super) const PARALLEL: &str = "The model does not support parallel tool calls.";
pub(super) const SCHEMA: &str = "The model does not support a response schema.";
pub(super) const SCHEMA_ONLY: &str = "The service does not support JSON output without a schema.";
pub(super) const SEED: &str = "The service does not support a seed.";
pub(super) const SERVICE: &str = "The service does not support this setting.";
pub(super) const SERVICE_BUDGET: &str = "The service does not accept a reasoning budget.";
pub(super) const SERVICE_SCHEMA: &str = "The service does not support a response schema.";
pub(super) const SERVICE_STOPS: &str = "The service does not support stop sequences.";
pub(super) const SERVICE_TOP_K: &str = "The service does not support top_k.";
pub(super) const TEMPERATURE: &str = "The model does not accept a temperature.";
pub(super) const TEMPERATURE_HERE: &str =
    "The model does not accept a temperature, at least not with reasoning enabled.";
pub(super) const TOOLS_WITHOUT_REASONING: &str = "Over Chat Completions, the model supports tools only without reasoning: its effort is none. Use a provider of kind \"openai-responses\" for both.";
pub(super) const TOP_K_HERE: &str = "The model does not accept top_k, at least not with reasoning enabled.";
pub(super) const TOP_P_HERE: &str =
    "The model does not accept top_p, at least not together with a temperature or with reasoning enabled.";

// Why media are rejected.

pub(super) const IMAGE_TYPES: &str = "The service accepts only PNG, JPEG, GIF and WebP images.";
pub(super) const MEDIA_PLACE: &str = "The service accepts media only in user messages and tool results.";
pub(super) const NO_AUDIO: &str = "The service does not accept audio.";
pub(super) const NO_FILES: &str = "The service does not accept files.";
pub(super) const NO_URLS: &str = "The service does not fetch URLs: store the content.";
pub(super) const NO_VIDEO: &str = "The service does not accept video.";

/// The settings that are set in `wanted` and rejected, each once, with the first reason given for
/// it.
pub(super) fn rejected(wanted: &Generation, table: impl IntoIterator<Item = SettingCheck>) -> Vec<Unsupported> {
    let mut rejected: Vec<Unsupported> = Vec::new();
    for (setting, is_rejected, why) in table {
        let is_new = rejected.iter().all(|known| known.setting != setting);
        if is_rejected && is_new && wanted.has(setting) {
            let why = why.to_owned();
            rejected.push(Unsupported { setting, why });
        }
    }
    rejected
}
