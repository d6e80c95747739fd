//! The tools of a session or turn.

use std::collections::BTreeMap;

use super::{
    Findings, Path, duration, json, number, output_limits, schema,
    text::{self, AtMost},
};
use crate::{
    model::{Tool, ToolCategory, ToolSet},
    pb::{self, FieldReason},
};

/// Most tools of a set.
const MOST: usize = 512;
/// Most characters of a tool's name.
const LONGEST_NAME: AtMost = AtMost::Chars(64);

/// Reads a set of tools.
pub(super) fn set(at: Path<'_>, set: pb::ToolSet, found: &mut Findings) -> ToolSet {
    let pb::ToolSet {
        host_tools,
        provider_tools,
    } = set;
    if host_tools.len() + provider_tools.len() > MOST {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST} tools"),
        );
    }
    unique_names(at.field("host_tools"), &host_tools, found);
    for (i, tool) in provider_tools.into_iter().enumerate() {
        check_provider_tool(at.field("provider_tools").index(i), tool, found);
        found.not_implemented(at.field("provider_tools"));
    }
    let at = at.field("host_tools");
    ToolSet {
        tools: host_tools
            .into_iter()
            .enumerate()
            .map(|(i, t)| tool(at.index(i), t, found))
            .collect(),
    }
}

/// Notes what is wrong with a tool's name.
pub(super) fn check_name(at: Path<'_>, name: &str, found: &mut Findings) {
    if name.is_empty() {
        found.required(at);
    } else if text::bounded(at, name, LONGEST_NAME, found)
        && !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must consist of characters of [A-Za-z0-9_-]",
        );
    }
}

fn unique_names(at: Path<'_>, tools: &[pb::Tool], found: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (i, tool) in tools
        .iter()
        .enumerate()
        .filter(|(_, tool)| !tool.name.is_empty())
    {
        let first = *seen.entry(&tool.name).or_insert(i);
        if first != i {
            let description = format!("{} has the same name", at.index(first));
            found.invalid(
                at.index(i).field("name"),
                FieldReason::Conflict,
                description,
            );
        }
    }
}

fn tool(at: Path<'_>, tool: pb::Tool, found: &mut Findings) -> Tool {
    let pb::Tool {
        name,
        description,
        input_schema,
        requires_approval,
        timeout,
        output_limits,
        category,
        deferred,
        strict,
    } = tool;
    check_name(at.field("name"), &name, found);
    Tool {
        name,
        description: text::clean(description).0,
        input_schema: input_schema
            .map(|schema| schema::json(at.field("input_schema"), schema, found)),
        requires_approval,
        timeout: duration::up_to(duration::DAY, at.field("timeout"), timeout, found),
        output_limits: output_limits
            .map(|limits| output_limits::read(at.field("output_limits"), limits, found)),
        category: tool_category(at.field("category"), category, found),
        deferred,
        strict,
    }
}

fn tool_category(at: Path<'_>, category: i32, found: &mut Findings) -> ToolCategory {
    use pb::ContextCategory as Wire;
    match number::known(at, category, found) {
        Some(Wire::Unspecified | Wire::Tools) | None => ToolCategory::Tools,
        Some(Wire::McpTools) => ToolCategory::McpTools,
        Some(Wire::Skills) => ToolCategory::Skills,
        Some(Wire::Agents) => ToolCategory::Agents,
        Some(
            Wire::SystemPrompt
            | Wire::DeferredTools
            | Wire::Memory
            | Wire::Pinned
            | Wire::Summary
            | Wire::User
            | Wire::Assistant
            | Wire::Reasoning
            | Wire::ToolCalls
            | Wire::ToolResults
            | Wire::Media
            | Wire::Queued,
        ) => {
            found.invalid(
                at,
                FieldReason::Unsupported,
                "must be TOOLS, MCP_TOOLS, SKILLS or AGENTS",
            );
            ToolCategory::Tools
        }
    }
}

fn check_provider_tool(at: Path<'_>, tool: pb::ProviderTool, found: &mut Findings) {
    let pb::ProviderTool {
        provider,
        definition_json,
    } = tool;
    if provider.is_empty() {
        found.required(at.field("provider"));
    }
    json::object(at.field("definition_json"), definition_json, found);
}
