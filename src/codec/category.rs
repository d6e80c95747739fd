//! Categories of a context window and their token counts, to and from their proto forms.

use crate::model::ledger::{CategoryTokens, ContextCategory};

use super::field::{choices, messages};

choices! {
    ContextCategory = ContextCategory {
        SystemPrompt, Tools, McpTools, DeferredTools, Skills, Agents, Memory, Pinned, Summary,
        User, Assistant, Reasoning, ToolCalls, ToolResults, Media, Queued,
    }
}

messages! {
    CategoryTokens = CategoryTokens {
        occupant = category,
        tokens,
        count,
        _ = in_total: |share| share.in_total(),
    }
}
