//! Decodes the tools of a session or turn.

use std::mem::take;

use super::{
    Findings, Path, duration, json, number, output_limits, schema,
    text::{self, AtMost, KIB},
};
use crate::{
    codec,
    model::ToolSet,
    pb::{self, FieldReason},
};

/// Maximum number of tools in a set.
const MOST: usize = 512;
/// Maximum length of a tool name, in characters.
const LONGEST_NAME: AtMost = AtMost::Chars(64);
/// Maximum length of a provider name, in characters.
const LONGEST_PROVIDER: AtMost = AtMost::Chars(256);
/// Maximum length of a tool's name at its MCP server, in characters.
const LONGEST_AT_SERVER: AtMost = AtMost::Chars(256);
/// Maximum number of MCP servers in a set.
const MOST_SERVERS: usize = 64;
/// Maximum size of a provider tool's definition, in bytes.
const LONGEST_DEFINITION: AtMost = AtMost::Bytes(256 * KIB);

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
    if host_tools.len() + provider_tools.len() > MOST {
        found.invalid(
            at,
            FieldReason::TooLarge,
            format!("must have at most {MOST} tools"),
        );
    }
    let at_host = at.field("host_tools");
    text::unique(at_host, host_tools.iter().map(|tool| &tool.name), found);
    let at_provider = at.field("provider_tools");
    for (i, tool) in provider_tools.iter().enumerate() {
        check_provider_tool(at_provider.index(i), tool, found);
    }
    let at_servers = at.field("mcp_servers");
    if mcp_servers.len() > MOST_SERVERS {
        found.invalid(
            at_servers,
            FieldReason::TooLarge,
            format!("must have at most {MOST_SERVERS} entries"),
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
    } else if text::bounded(at, name, LONGEST_NAME, found)
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
        text::check_line(at.field("tool"), tool, LONGEST_AT_SERVER, found);
    }
    *description = text::clean(take(description)).0;
    if let Some(schema) = input_schema {
        schema::check(at.field("input_schema"), schema, found);
    }
    duration::up_to(duration::DAY, at.field("timeout"), *timeout, found);
    if let Some(limits) = output_limits {
        output_limits::check(at.field("output_limits"), limits, found);
    }
    let at = at.field("category");
    if let Some(category) = number::known(at, *category, found)
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
        text::check_line(at, server, LONGEST_PROVIDER, found);
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
    if tools.len() > MOST {
        found.invalid(
            at_tools,
            FieldReason::TooLarge,
            format!("must have at most {MOST} names"),
        );
    }
    for (i, tool) in tools.iter().enumerate() {
        text::check_line(at_tools.index(i), tool, LONGEST_AT_SERVER, found);
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
        text::check_line(at.field("provider"), provider, LONGEST_PROVIDER, found);
    }
    let at = at.field("definition_json");
    if text::bounded(at, definition_json, LONGEST_DEFINITION, found) {
        json::object(at, definition_json.clone(), found);
    }
}
