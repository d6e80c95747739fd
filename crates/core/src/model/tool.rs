//! Tools, and the limits on their output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::choices;

choices!(Keep);

/// The tools of a session or turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSet {
    /// Run by the host; names are unique.
    pub tools: Vec<Tool>,
    /// Tools that a provider runs. Each names its provider and is not sent to models of other providers.
    pub provider_tools: Vec<ProviderTool>,
    /// MCP servers whose tools have not been listed yet. Empty in a stored set, in which their tools are in `tools`.
    pub mcp_servers: Vec<McpServerTools>,
}

/// Tools of an MCP server, by the names in the server's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerTools {
    /// Configured name of the server.
    pub server: String,
    /// The tools to include, by the names that the server gives them. Empty means all tools.
    pub only: Vec<String>,
    /// Prefix for the server's tool names.
    pub prefix: String,
    /// Each call requires a user's approval.
    pub requires_approval: bool,
    /// How long to wait for a result. `None` means as configured for the server.
    pub timeout: Option<Duration>,
    /// Limits on the output; they take precedence over the policy's.
    pub output_limits: Option<OutputLimits>,
}

/// A tool of an MCP server, called by contextd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpTool {
    /// Configured name of the server.
    pub server: String,
    /// The server's name of the tool.
    pub tool: String,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ToolExecutor {
    #[default]
    Host,
    /// contextd, by calling an MCP server.
    Mcp,
}

/// A tool that a provider itself runs, such as its web search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderTool {
    /// Configured name of the provider.
    pub provider: String,
    /// The definition in the provider's own format, a JSON object.
    pub definition: String,
}

/// Prefixes of the types of tools that Anthropic defines but the client runs (Anthropic's documentation of tool use,
/// read in November 2026). A date follows the prefix.
const HOST_TOOL_PREFIXES: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

impl ProviderTool {
    /// The name that the model uses to call the tool. Returns `None` unless the host runs it.
    fn host_name(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Definition {
            #[serde(rename = "type")]
            kind: String,
            name: String,
        }
        let Definition { kind, name } = serde_json::from_str(&self.definition).ok()?;
        HOST_TOOL_PREFIXES.iter().any(|it| kind.starts_with(it)).then_some(name)
    }
}

impl ToolSet {
    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The tools that are sent to the model.
    pub fn visible(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| !tool.deferred)
    }

    /// Whether the host runs a provider tool with this name: its calls are handled like those of the host's own tools.
    pub fn host_runs(&self, name: &str) -> bool {
        let mut names = self.provider_tools.iter().filter_map(ProviderTool::host_name);
        names.any(|it| it == name)
    }

    /// The definitions of the tools that this provider (by its configured name) runs.
    pub fn run_by<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a str> {
        self.provider_tools.iter().filter(move |tool| tool.provider == provider).map(|tool| tool.definition.as_str())
    }
}

/// A tool that the host runs, or contextd by calling an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The name that the model uses.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments as JSON text. `None` means no arguments.
    pub input_schema: Option<String>,
    /// Each call requires a user's approval.
    pub requires_approval: bool,
    /// How long to wait for a result. `None` means the turn's limit.
    pub timeout: Option<Duration>,
    /// Limits on the output; they take precedence over the policy's.
    pub output_limits: Option<OutputLimits>,
    /// The category that its definition is counted in.
    pub category: ToolCategory,
    /// Known to the host but not sent to the model.
    pub deferred: bool,
    /// Request that the provider enforces the schema on the arguments.
    pub strict: Option<bool>,
    /// The MCP tool to call. `None` means the host runs the tool.
    pub mcp: Option<McpTool>,
}

impl Tool {
    /// Who runs the tool.
    pub fn executor(&self) -> ToolExecutor {
        match self.mcp {
            Some(_) => ToolExecutor::Mcp,
            None => ToolExecutor::Host,
        }
    }
}

/// The category that a tool's definition is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ToolCategory {
    /// The host's own tools.
    #[default]
    Tools,
    /// Tools of MCP servers.
    McpTools,
    Skills,
    /// Sub-agents.
    Agents,
}

/// Which part of an output is kept if it is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    #[default]
    Head,
    /// The beginning and the end, half each.
    HeadAndTail,
}

/// Limits on the output of a tool in the prompt. Characters are Unicode scalar values. `None` means no limit from this
/// layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Total characters.
    pub max_chars: Option<u32>,
    pub max_lines: Option<u32>,
    /// Characters per line.
    pub max_line_length: Option<u32>,
    /// Matches of a search tool, counted as non-empty lines.
    pub max_matches: Option<u32>,
    /// `None` means the layer below decides.
    pub keep: Option<Keep>,
}

impl OutputLimits {
    /// These limits; unset fields are taken from `below`.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        Self {
            max_chars: self.max_chars.or(below.max_chars),
            max_lines: self.max_lines.or(below.max_lines),
            max_line_length: self.max_line_length.or(below.max_line_length),
            max_matches: self.max_matches.or(below.max_matches),
            keep: self.keep.or(below.keep),
        }
    }
}
