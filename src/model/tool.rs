//! Tools that a host offers, and how much of their output is kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The tools of a session or turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSet {
    /// Run by the host; names are unique.
    pub tools: Vec<Tool>,
    /// Run by the provider that each names; left out for models of others.
    pub provider_tools: Vec<ProviderTool>,
    /// Tools of MCP servers that are yet to be listed. Empty in a set that is stored: they are among
    /// `tools` then.
    pub mcp_servers: Vec<McpServerTools>,
}

/// Tools of an MCP server as it lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerTools {
    /// Configured name of the server.
    pub server: String,
    /// Only these, by the server's names; empty means all.
    pub only: Vec<String>,
    /// What is put before the server's names.
    pub prefix: String,
    /// A person is asked before each runs.
    pub requires_approval: bool,
    /// How long a result is awaited. `None` means as configured for the server.
    pub timeout: Option<Duration>,
    /// How much of the output is kept; wins over the policy.
    pub output_limits: Option<OutputLimits>,
}

/// A tool of an MCP server, which contextd calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpTool {
    /// Configured name of the server.
    pub server: String,
    /// What the server calls it.
    pub tool: String,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ToolExecutor {
    /// The host.
    #[default]
    Host,
    /// contextd, on an MCP server.
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

/// How the types of tools begin that Anthropic defines and the client runs (its documentation of tool
/// use, read in November 2026); a date follows.
const RUN_BY_HOST: [&str; 4] = ["bash_", "computer_", "memory_", "text_editor_"];

impl ProviderTool {
    /// The name by which a model calls it, if the provider only defines it and the host runs it.
    fn host_name(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Definition {
            #[serde(rename = "type")]
            kind: String,
            name: String,
        }
        let Definition { kind, name } = serde_json::from_str(&self.definition).ok()?;
        RUN_BY_HOST
            .iter()
            .any(|it| kind.starts_with(it))
            .then_some(name)
    }
}

impl ToolSet {
    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The tools that are sent to the model.
    pub fn visible(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().filter(|tool| !tool.deferred)
    }

    /// Whether a provider tool of that name is run by the host: calls of it come as those of the host's
    /// own tools do.
    pub fn host_runs(&self, name: &str) -> bool {
        let mut names = self
            .provider_tools
            .iter()
            .filter_map(ProviderTool::host_name);
        names.any(|it| it == name)
    }

    /// The definitions of those that the provider of that configured name runs.
    pub fn run_by<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a str> {
        self.provider_tools
            .iter()
            .filter(move |tool| tool.provider == provider)
            .map(|tool| tool.definition.as_str())
    }
}

/// A tool that the host runs, or contextd on an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// What the model calls it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments as JSON text. `None` means no arguments.
    pub input_schema: Option<String>,
    /// A person is asked before it runs.
    pub requires_approval: bool,
    /// How long a result is awaited. `None` means the turn's limit.
    pub timeout: Option<Duration>,
    /// How much of the output is kept; wins over the policy.
    pub output_limits: Option<OutputLimits>,
    /// Where its definition is counted.
    pub category: ToolCategory,
    /// Known to the host but not sent to the model.
    pub deferred: bool,
    /// Ask the provider to hold the arguments to the schema.
    pub strict: Option<bool>,
    /// Where contextd calls it. `None` means the host runs it.
    pub mcp: Option<McpTool>,
}

impl Tool {
    /// Who runs it.
    pub fn executor(&self) -> ToolExecutor {
        match self.mcp {
            Some(_) => ToolExecutor::Mcp,
            None => ToolExecutor::Host,
        }
    }
}

/// Where a tool's definition is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ToolCategory {
    /// The host's own tools.
    #[default]
    Tools,
    /// Tools that come from MCP servers.
    McpTools,
    /// Skills.
    Skills,
    /// Sub-agents.
    Agents,
}

/// Which part of an output that is too long is kept.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The beginning.
    #[default]
    Head,
    /// The beginning and the end, half each.
    HeadAndTail,
}

/// How much of a tool's output the model sees. Characters are Unicode scalar values. `None` means
/// not limited here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Characters in all.
    pub max_chars: Option<u32>,
    /// Lines.
    pub max_lines: Option<u32>,
    /// Characters of one line.
    pub max_line_length: Option<u32>,
    /// Matches of a search-like tool, counted as non-empty lines.
    pub max_matches: Option<u32>,
    /// Which part is kept. `None` means the layer below decides.
    pub keep: Option<Keep>,
}

impl OutputLimits {
    /// These limits, with those of `below` where nothing is set here.
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
