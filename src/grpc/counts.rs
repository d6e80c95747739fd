//! Encodes token counts for responses.

use crate::{
    codec::field::Field as _,
    context::{
        count::{CategoryTokens, Counts, TokenCategory},
        stats::{message_occupant, tool_occupant},
    },
    model::ledger::ContextCategory,
    pb,
};

/// Encodes the response of CountTokens.
pub(super) fn counts(counts: &Counts) -> pb::CountTokensResponse {
    let Counts { total, shares, messages } = counts;
    pb::CountTokensResponse {
        total: total.to_field(),
        categories: shares.iter().map(spent).collect(),
        message_tokens: messages.to_field(),
    }
}

fn spent(spent: &CategoryTokens) -> pb::CategoryTokens {
    let CategoryTokens { category: on, tokens, count } = *spent;
    pb::CategoryTokens {
        category: category(on).to_field(),
        tokens: i32::try_from(tokens).unwrap_or(i32::MAX),
        count: i32::try_from(count).unwrap_or(i32::MAX),
        in_total: true,
    }
}

fn category(share: TokenCategory) -> ContextCategory {
    match share {
        TokenCategory::System => ContextCategory::SystemPrompt,
        TokenCategory::Tools(category) => tool_occupant(category),
        TokenCategory::Messages(category) => message_occupant(category),
    }
}
