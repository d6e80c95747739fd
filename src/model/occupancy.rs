//! What occupies a window, and how much of it.

/// What occupies a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occupant {
    /// The session's system prompt.
    SystemPrompt,
    /// Definitions of tools.
    Tools,
    /// Definitions of tools that come from MCP servers.
    McpTools,
    /// Tools that the model is not sent; not part of the total.
    DeferredTools,
    /// Skills: tools or blocks.
    Skills,
    /// Sub-agents: tools or blocks.
    Agents,
    /// Memory files.
    Memory,
    /// Other blocks, and messages that compactions leave alone.
    Pinned,
    /// Summaries.
    Summary,
    /// Text of users.
    User,
    /// Text of the model.
    Assistant,
    /// Reasoning.
    Reasoning,
    /// Tool calls.
    ToolCalls,
    /// Tool results.
    ToolResults,
    /// Images and files.
    Media,
    /// Messages that wait; not part of the total.
    Queued,
}

/// One occupant's share of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Whose.
    pub occupant: Occupant,
    /// Tokens.
    pub tokens: u32,
    /// Things in it.
    pub count: u32,
}

impl Share {
    /// Whether the tokens are part of the total.
    pub fn in_total(&self) -> bool {
        !matches!(self.occupant, Occupant::DeferredTools | Occupant::Queued)
    }
}
