//! Categories of a context window and their token counts, to and from their proto forms.

use crate::{
    model::ledger::{Occupant, Share},
    pb,
};

use super::{
    DecodeError,
    number::{known, signed, unsigned},
};

/// Converts a category's share of the context window for the wire.
pub fn share_to_pb(share: &Share) -> pb::CategoryTokens {
    pb::CategoryTokens {
        category: occupant_to_pb(share.occupant).into(),
        tokens: signed(share.tokens),
        count: signed(share.count),
        in_total: share.in_total(),
    }
}

/// Reads a stored share.
pub fn share_from_pb(share: pb::CategoryTokens) -> Result<Share, DecodeError> {
    let pb::CategoryTokens {
        category,
        tokens,
        count,
        in_total: _,
    } = share;
    Ok(Share {
        occupant: occupant_from_pb(known("context category", category)?)?,
        tokens: unsigned("context category", tokens)?,
        count: unsigned("context category", count)?,
    })
}

/// Converts a category.
pub fn occupant_to_pb(occupant: Occupant) -> pb::ContextCategory {
    use pb::ContextCategory as C;
    match occupant {
        Occupant::SystemPrompt => C::SystemPrompt,
        Occupant::Tools => C::Tools,
        Occupant::McpTools => C::McpTools,
        Occupant::DeferredTools => C::DeferredTools,
        Occupant::Skills => C::Skills,
        Occupant::Agents => C::Agents,
        Occupant::Memory => C::Memory,
        Occupant::Pinned => C::Pinned,
        Occupant::Summary => C::Summary,
        Occupant::User => C::User,
        Occupant::Assistant => C::Assistant,
        Occupant::Reasoning => C::Reasoning,
        Occupant::ToolCalls => C::ToolCalls,
        Occupant::ToolResults => C::ToolResults,
        Occupant::Media => C::Media,
        Occupant::Queued => C::Queued,
    }
}

fn occupant_from_pb(category: pb::ContextCategory) -> Result<Occupant, DecodeError> {
    use pb::ContextCategory as C;
    Ok(match category {
        C::Unspecified => return Err(DecodeError::new("context category", "it is not set")),
        C::SystemPrompt => Occupant::SystemPrompt,
        C::Tools => Occupant::Tools,
        C::McpTools => Occupant::McpTools,
        C::DeferredTools => Occupant::DeferredTools,
        C::Skills => Occupant::Skills,
        C::Agents => Occupant::Agents,
        C::Memory => Occupant::Memory,
        C::Pinned => Occupant::Pinned,
        C::Summary => Occupant::Summary,
        C::User => Occupant::User,
        C::Assistant => Occupant::Assistant,
        C::Reasoning => Occupant::Reasoning,
        C::ToolCalls => Occupant::ToolCalls,
        C::ToolResults => Occupant::ToolResults,
        C::Media => Occupant::Media,
        C::Queued => Occupant::Queued,
    })
}
