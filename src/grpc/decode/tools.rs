//! Decodes the tools of a session or turn.

use std::mem::take;

use super::{
    Findings, Path, duration, json, number, output_limits, schema,
    text::{self, KIB, MaxLength},
};
use crate::{
    codec,
    model::ToolSet,
    pb::{self, FieldReason},
};

/// Maximum number of tools in a set.
const MAX_TOOLS: usize = 512;
/// Maximum length of a tool name, in characters.
const MAX_NAME_LENGTH: MaxLength = MaxLength::Chars(64);
/// Maximum length of a provider name, in characters.
const MAX_PROVIDER_LENGTH: MaxLength = MaxLength::Chars(256);
/// Maximum length of a tool's name at its MCP server, in characters.
const MAX_MCP_TOOL_LENGTH: MaxLength = MaxLength::Chars(256);
/// Maximum number of MCP servers in a set.
const MAX_MCP_SERVERS: usize = 64;
/// Maximum size of a provider tool's definition, in bytes.
const MAX_DEFINITION_SIZE: MaxLength = MaxLength::Bytes(256 * KIB);

/// Decodes a set of tools.
pub(super) fn set(at: Path<'_>, mut set: pb::ToolSet, found: &mut Findings) -> ToolSet {
    check(at, &mut set, found);
    found.converted(at, codec::tools::from_pb(set))
}

/// Checks a set of tools, cleans their texts, and converts schemas to the form in which they are stored.
pub(super) fn check(at: Path<'_>, set: &mut pb::ToolSet, found: &mut Findings) {
    let pb::ToolSet {
        host_tools,
        provider_tools,
        mcp_servers,
    } = set;
    if host_tools.len() + provider_tools.len() > MAX_TOOLS {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MAX_TOOLS} tools"),
        );
    }
    let at_host = at.field("host_tools");
    text::check_unique_names(at_host, host_tools.iter().map(|tool| &tool.name), found);
    let at_provider = at.field("provider_tools");
    for (i, tool) in provider_tools.iter().enumerate() {
        check_provider_tool(at_provider.index(i), tool, found);
    }
    let at_servers = at.field("mcp_servers");
    if mcp_servers.len() > MAX_MCP_SERVERS {
        found.invalid(
            at_servers,
            FieldReason::TooLarge,
            format!("must have at most {MAX_MCP_SERVERS} entries"),
        );
    }
    for (i, server) in mcp_servers.iter_mut().enumerate() {
        check_mcp_server(at_servers.index(i), server, found);
    }
    for (i, tool) in host_tools.iter_mut().enumerate() {
        check_tool(at_host.index(i), tool, found);
    }
}

/// Reports an invalid tool name.
pub(super) fn check_name(at: Path<'_>, name: &str, found: &mut Findings) {
    if name.is_empty() {
        found.required(at);
    } else if text::check_length(at, name, MAX_NAME_LENGTH, found)
        && !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    {
        found.invalid(
            at,
            FieldReason::Invalid,
            "must contain only the characters [A-Za-z0-9_-]",
        );
    }
}

fn check_tool(at: Path<'_>, tool: &mut pb::Tool, found: &mut Findings) {
    let pb::Tool {
        name,
        description,
        input_schema,
        requires_approval: _,
        timeout,
        output_limits,
        category,
        deferred: _,
        strict: _,
        mcp,
    } = tool;
    check_name(at.field("name"), name, found);
    if let Some(pb::McpTool { server, tool }) = mcp {
        let at = at.field("mcp");
        check_server_name(at.field("server"), server, found);
        text::check_single_line(at.field("tool"), tool, MAX_MCP_TOOL_LENGTH, found);
    }
    *description = text::replace_nul(take(description)).0;
    if let Some(schema) = input_schema {
        schema::check(at.field("input_schema"), schema, found);
    }
    duration::up_to(duration::DAY, at.field("timeout"), *timeout, found);
    if let Some(limits) = output_limits {
        output_limits::check(at.field("output_limits"), limits, found);
    }
    let at = at.field("category");
    if let Some(category) = number::enum_value(at, *category, found)
        && codec::tools::category_from_pb(category).is_err()
    {
        found.invalid(
            at,
            FieldReason::Unsupported,
            "must be TOOLS, MCP_TOOLS, SKILLS or AGENTS",
        );
    }
}

fn check_server_name(at: Path<'_>, server: &str, found: &mut Findings) {
    if server.is_empty() {
        found.required(at);
    } else {
        text::check_single_line(at, server, MAX_PROVIDER_LENGTH, found);
    }
}

fn check_mcp_server(at: Path<'_>, server: &mut pb::McpServerTools, found: &mut Findings) {
    let pb::McpServerTools {
        server,
        tools,
        prefix,
        requires_approval: _,
        timeout,
        output_limits,
    } = server;
    check_server_name(at.field("server"), server, found);
    let at_tools = at.field("tools");
    if tools.len() > MAX_TOOLS {
        found.invalid(
            at_tools,
            FieldReason::TooLarge,
            format!("must have at most {MAX_TOOLS} names"),
        );
    }
    for (i, tool) in tools.iter().enumerate() {
        text::check_single_line(at_tools.index(i), tool, MAX_MCP_TOOL_LENGTH, found);
    }
    if !prefix.is_empty() {
        check_name(at.field("prefix"), prefix, found);
    }
    duration::up_to(duration::DAY, at.field("timeout"), *timeout, found);
    if let Some(limits) = output_limits {
        output_limits::check(at.field("output_limits"), limits, found);
    }
}

fn check_provider_tool(at: Path<'_>, tool: &pb::ProviderTool, found: &mut Findings) {
    let pb::ProviderTool {
        provider,
        definition_json,
    } = tool;
    if provider.is_empty() {
        found.required(at.field("provider"));
    } else {
        text::check_single_line(at.field("provider"), provider, MAX_PROVIDER_LENGTH, found);
    }
    let at = at.field("definition_json");
    if text::check_length(at, definition_json, MAX_DEFINITION_SIZE, found) {
        json::object(at, definition_json.clone(), found);
    }
}
