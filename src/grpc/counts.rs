//! Encodes token counts for responses.

use crate::{
    codec::field::Field as _,
    context::count::{CategoryTokens, Counts, TokenCategory},
    model::{Category, ToolCategory},
    pb::{self, ContextCategory},
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
        category: category(on).into(),
        tokens: i32::try_from(tokens).unwrap_or(i32::MAX),
        count: i32::try_from(count).unwrap_or(i32::MAX),
        in_total: true,
    }
}

fn category(share: TokenCategory) -> ContextCategory {
    match share {
        TokenCategory::System => ContextCategory::SystemPrompt,
        TokenCategory::Tools(ToolCategory::Tools) => ContextCategory::Tools,
        TokenCategory::Tools(ToolCategory::McpTools) => ContextCategory::McpTools,
        TokenCategory::Tools(ToolCategory::Skills) => ContextCategory::Skills,
        TokenCategory::Tools(ToolCategory::Agents) => ContextCategory::Agents,
        TokenCategory::Messages(Category::User) => ContextCategory::User,
        TokenCategory::Messages(Category::Assistant) => ContextCategory::Assistant,
        TokenCategory::Messages(Category::Reasoning) => ContextCategory::Reasoning,
        TokenCategory::Messages(Category::ToolCalls) => ContextCategory::ToolCalls,
        TokenCategory::Messages(Category::ToolResults) => ContextCategory::ToolResults,
        TokenCategory::Messages(Category::Media) => ContextCategory::Media,
        TokenCategory::Messages(Category::Summary) => ContextCategory::Summary,
        TokenCategory::Messages(Category::Pinned) => ContextCategory::Pinned,
    }
}
