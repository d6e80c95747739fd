//! Builds the prompt from the session's configuration, the model's capabilities and the transcript.

use super::estimate;
use crate::model::{ClosedTranscript, Contents, Generation, Prompt, SessionConfig, Tool, ToolSet};

/// The model of one call, and the settings of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCallSettings<'a> {
    /// Configured name of the provider.
    pub provider: &'a str,
    /// The model's name at its provider.
    pub model: &'a str,
    /// Whether the model supports tools; if not, none are sent.
    pub supports_tools: bool,
    /// Maximum tokens of the response. `None` means the model's limit.
    pub max_output_tokens: Option<u32>,
    /// Generation settings that the model supports.
    pub generation: Generation,
}

/// Builds the prompt for one call. `tools` are those of the turn. The caller adds the content of the media.
pub fn build(
    config: &SessionConfig,
    tools: &ToolSet,
    transcript: ClosedTranscript,
    asked: &ModelCallSettings<'_>,
) -> Prompt {
    let ModelCallSettings { provider, model, supports_tools, max_output_tokens, generation } = asked;
    let system = instructions(config);
    let mut host_tools: Vec<Tool> = Vec::new();
    let mut provider_tools: Vec<String> = Vec::new();
    if *supports_tools {
        host_tools.extend(tools.visible().cloned());
        provider_tools.extend(tools.run_by(provider).map(str::to_owned));
    }
    let size = estimate::prompt(&system.join("\n\n"), &host_tools, &transcript);
    Prompt {
        model: (*model).to_owned(),
        system,
        transcript,
        contents: Contents::default(),
        tools: host_tools,
        provider_tools,
        max_output_tokens: *max_output_tokens,
        generation: generation.clone(),
        size,
    }
}

/// The system prompt, followed by each pinned block under its name as a heading, as one text.
pub fn system(config: &SessionConfig) -> String {
    instructions(config).join("\n\n")
}

/// The system prompt, followed by each pinned block under its name as a heading. The format is stable, so that
/// providers' prompt caches stay valid.
fn instructions(config: &SessionConfig) -> Vec<String> {
    let blocks = config.pinned_blocks.iter().map(|block| format!("# {}\n{}", block.name, block.text));
    let prompt = Some(config.system_prompt.clone()).filter(|prompt| !prompt.is_empty());
    prompt.into_iter().chain(blocks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::testing,
        model::{PinnedBlock, PinnedKind, Tool},
    };

    fn config(system_prompt: &str, blocks: &[(&str, &str)]) -> SessionConfig {
        let block = |(name, text): &(&str, &str)| PinnedBlock {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            kind: PinnedKind::Memory,
        };
        SessionConfig {
            system_prompt: system_prompt.to_owned(),
            pinned_blocks: blocks.iter().map(block).collect(),
            ..SessionConfig::default()
        }
    }

    #[test]
    fn pinned_blocks_follow_the_system_prompt_under_their_names() {
        let table = [
            (config("", &[]), ""),
            (config("Be brief.", &[]), "Be brief."),
            (config("Be brief.", &[("notes", "Likes tea.")]), "Be brief.\n\n# notes\nLikes tea."),
            (config("", &[("a", "1"), ("b", "2")]), "# a\n1\n\n# b\n2"),
        ];
        for (input, expected) in table {
            assert_eq!(system(&input), expected);
        }
    }

    #[test]
    fn a_model_without_tool_support_gets_no_tools() {
        let hidden = Tool { deferred: true, ..testing::tool("later") };
        let tools = ToolSet { tools: vec![testing::tool("read"), hidden], ..ToolSet::default() };
        let names = |supports_tools| {
            let transcript = testing::closed(vec![testing::user("Hello")]);
            let asked = ModelCallSettings {
                provider: "main",
                model: "demo",
                supports_tools,
                max_output_tokens: Some(9),
                generation: Generation::default(),
            };
            let prompt = build(&config("", &[]), &tools, transcript, &asked);
            assert_eq!((prompt.model.as_str(), prompt.max_output_tokens), ("demo", Some(9)));
            prompt.tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["read"]);
        assert!(names(false).is_empty());
    }
}
