//! Categories of a context window and their token counts, to and from their proto forms.

use crate::{
    model::ledger::{CategoryTokens, ContextCategory},
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// Converts a category's share of the context window for the wire.
pub fn share_to_pb(share: &CategoryTokens) -> pb::CategoryTokens {
    pb::CategoryTokens {
        category: occupant_to_pb(share.occupant).into(),
        tokens: signed(share.tokens),
        count: signed(share.count),
        in_total: share.in_total(),
    }
}

/// Reads a stored share.
pub fn share_from_pb(share: pb::CategoryTokens) -> Result<CategoryTokens, DecodeError> {
    let pb::CategoryTokens {
        category,
        tokens,
        count,
        in_total: _,
    } = share;
    Ok(CategoryTokens {
        occupant: occupant_from_pb(known("context category", category)?)?,
        tokens: unsigned("context category", tokens)?,
        count: unsigned("context category", count)?,
    })
}

/// Converts a category.
pub fn occupant_to_pb(occupant: ContextCategory) -> pb::ContextCategory {
    use pb::ContextCategory as C;
    match occupant {
        ContextCategory::SystemPrompt => C::SystemPrompt,
        ContextCategory::Tools => C::Tools,
        ContextCategory::McpTools => C::McpTools,
        ContextCategory::DeferredTools => C::DeferredTools,
        ContextCategory::Skills => C::Skills,
        ContextCategory::Agents => C::Agents,
        ContextCategory::Memory => C::Memory,
        ContextCategory::Pinned => C::Pinned,
        ContextCategory::Summary => C::Summary,
        ContextCategory::User => C::User,
        ContextCategory::Assistant => C::Assistant,
        ContextCategory::Reasoning => C::Reasoning,
        ContextCategory::ToolCalls => C::ToolCalls,
        ContextCategory::ToolResults => C::ToolResults,
        ContextCategory::Media => C::Media,
        ContextCategory::Queued => C::Queued,
    }
}

fn occupant_from_pb(category: pb::ContextCategory) -> Result<ContextCategory, DecodeError> {
    use pb::ContextCategory as C;
    Ok(match category {
        C::Unspecified => return Err(DecodeError::new("context category", "it is not set")),
        C::SystemPrompt => ContextCategory::SystemPrompt,
        C::Tools => ContextCategory::Tools,
        C::McpTools => ContextCategory::McpTools,
        C::DeferredTools => ContextCategory::DeferredTools,
        C::Skills => ContextCategory::Skills,
        C::Agents => ContextCategory::Agents,
        C::Memory => ContextCategory::Memory,
        C::Pinned => ContextCategory::Pinned,
        C::Summary => ContextCategory::Summary,
        C::User => ContextCategory::User,
        C::Assistant => ContextCategory::Assistant,
        C::Reasoning => ContextCategory::Reasoning,
        C::ToolCalls => ContextCategory::ToolCalls,
        C::ToolResults => ContextCategory::ToolResults,
        C::Media => ContextCategory::Media,
        C::Queued => ContextCategory::Queued,
    })
}
