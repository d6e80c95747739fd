//! What the context window is used for, by category.

/// A category of the tokens in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextCategory {
    SystemPrompt,
    /// Tool definitions.
    Tools,
    /// Definitions of tools from MCP servers.
    McpTools,
    /// Tools that are not sent to the model; not part of the total.
    DeferredTools,
    /// Skills: tools or pinned blocks.
    Skills,
    /// Sub-agents: tools or pinned blocks.
    Agents,
    /// Memory files.
    Memory,
    /// Other pinned blocks, and pinned messages.
    Pinned,
    Summary,
    /// Text of user messages.
    User,
    /// Text of assistant messages.
    Assistant,
    Reasoning,
    ToolCalls,
    ToolResults,
    /// Images and files.
    Media,
    /// Queued messages; not part of the total.
    Queued,
}

/// The tokens of one category in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CategoryTokens {
    pub occupant: ContextCategory,
    pub tokens: u32,
    /// Number of items.
    pub count: u32,
}

impl CategoryTokens {
    /// Whether the tokens are part of the total.
    pub fn in_total(&self) -> bool {
        !matches!(self.occupant, ContextCategory::DeferredTools | ContextCategory::Queued)
    }
}
