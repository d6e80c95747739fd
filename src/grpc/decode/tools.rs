//! Decodes the tools of a session or turn.

use super::{Findings, Path, json, number, schema, text};
use crate::{
    codec::field::Field,
    model::{ToolCategory, ToolSet},
    pb::{
        self, FieldReason,
        limits::{provider_tool, tool_set},
    },
};

/// Decodes a set of tools.
pub(super) fn set(at: Path<'_>, mut set: pb::ToolSet, found: &mut Findings) -> ToolSet {
    check(at, &mut set, found);
    found.converted(at, Field::from_field("tools", set))
}

/// Checks what the limits of the fields do not express, cleans texts, and converts schemas and names to the form in
/// which they are stored.
pub(super) fn check(at: Path<'_>, set: &mut pb::ToolSet, found: &mut Findings) {
    let pb::ToolSet { host_tools, provider_tools, mcp_servers: _ } = set;
    if host_tools.len() + provider_tools.len() > tool_set::HOST_TOOLS {
        found.invalid(at, FieldReason::TooLarge, format!("must have at most {} tools", tool_set::HOST_TOOLS));
    }
    let at_host = at.field("host_tools");
    text::check_unique_names(at_host, host_tools.iter().map(|tool| &tool.name), found);
    let at_provider = at.field("provider_tools");
    for (i, pb::ProviderTool { definition_json, .. }) in provider_tools.iter().enumerate() {
        if provider_tool::DEFINITION_JSON.fits(definition_json) {
            let at = at_provider.index(i);
            json::check_object(at.field("definition_json"), definition_json, found);
        }
    }
    for (i, tool) in host_tools.iter_mut().enumerate() {
        check_tool(at_host.index(i), tool, found);
    }
}

fn check_tool(at: Path<'_>, tool: &mut pb::Tool, found: &mut Findings) {
    text::clean(&mut tool.description);
    if let Some(mcp) = &mut tool.mcp
        && mcp.tool.is_empty()
    {
        mcp.tool.clone_from(&tool.name);
    }
    if let Some(schema) = &mut tool.input_schema {
        schema::check(at.field("input_schema"), schema, found);
    }
    let category = number::choice(tool.category);
    if category.is_some_and(|it: pb::ContextCategory| ToolCategory::from_field("category", it.into()).is_err()) {
        found.invalid(at.field("category"), FieldReason::Unsupported, "must be TOOLS, MCP_TOOLS, SKILLS or AGENTS");
    }
}
