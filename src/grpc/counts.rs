//! Encodes token counts for responses.

use crate::{
    codec,
    context::count::{Counts, Share, Spent},
    model::{Category, ToolCategory},
    pb::{self, ContextCategory},
};

/// Encodes the response of CountTokens.
pub(super) fn counts(counts: &Counts) -> pb::CountTokensResponse {
    let Counts {
        total,
        shares,
        messages,
    } = counts;
    pb::CountTokensResponse {
        total: Some(codec::usage::count_to_pb(total)),
        categories: shares.iter().map(spent).collect(),
        message_tokens: messages.iter().map(codec::usage::count_to_pb).collect(),
    }
}

fn spent(spent: &Spent) -> pb::CategoryTokens {
    let Spent { on, tokens, count } = *spent;
    pb::CategoryTokens {
        category: category(on).into(),
        tokens: i32::try_from(tokens).unwrap_or(i32::MAX),
        count: i32::try_from(count).unwrap_or(i32::MAX),
        in_total: true,
    }
}

fn category(share: Share) -> ContextCategory {
    match share {
        Share::System => ContextCategory::SystemPrompt,
        Share::Tools(ToolCategory::Tools) => ContextCategory::Tools,
        Share::Tools(ToolCategory::McpTools) => ContextCategory::McpTools,
        Share::Tools(ToolCategory::Skills) => ContextCategory::Skills,
        Share::Tools(ToolCategory::Agents) => ContextCategory::Agents,
        Share::Said(Category::User) => ContextCategory::User,
        Share::Said(Category::Assistant) => ContextCategory::Assistant,
        Share::Said(Category::Reasoning) => ContextCategory::Reasoning,
        Share::Said(Category::ToolCalls) => ContextCategory::ToolCalls,
        Share::Said(Category::ToolResults) => ContextCategory::ToolResults,
        Share::Said(Category::Media) => ContextCategory::Media,
        Share::Said(Category::Summary) => ContextCategory::Summary,
        Share::Said(Category::Pinned) => ContextCategory::Pinned,
    }
}
