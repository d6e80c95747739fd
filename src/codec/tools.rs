//! Tool sets, to and from bytes and their wire form.

use prost::Message as _;

use crate::{
    model::{McpServerTools, McpTool, ProviderTool, Tool, ToolCategory, ToolExecutor, ToolSet},
    pb,
};

use super::{DecodeError, number::known, output, read, time};

/// Encodes a tool set. Equal sets have equal bytes.
pub fn encode(tools: &ToolSet) -> Vec<u8> {
    to_pb(tools).encode_to_vec()
}

/// The id of a tool set: the hash of its encoded bytes.
pub fn content_id(encoded: &[u8]) -> String {
    crate::model::derive::blob(encoded).into_string()
}

/// Decodes a tool set.
pub fn decode(bytes: &[u8]) -> Result<ToolSet, DecodeError> {
    from_pb(read("tool set", bytes)?)
}

/// Converts a tool set for the wire.
pub fn to_pb(tools: &ToolSet) -> pb::ToolSet {
    let ToolSet {
        tools,
        provider_tools,
        mcp_servers,
    } = tools;
    pb::ToolSet {
        host_tools: tools.iter().map(tool_to_pb).collect(),
        provider_tools: provider_tools.iter().map(provider_tool_to_pb).collect(),
        mcp_servers: mcp_servers.iter().map(mcp_server_to_pb).collect(),
    }
}

/// Reads a stored tool set.
pub fn from_pb(tools: pb::ToolSet) -> Result<ToolSet, DecodeError> {
    let pb::ToolSet {
        host_tools,
        provider_tools,
        mcp_servers,
    } = tools;
    Ok(ToolSet {
        tools: host_tools
            .into_iter()
            .map(tool_from_pb)
            .collect::<Result<_, _>>()?,
        provider_tools: provider_tools
            .into_iter()
            .map(provider_tool_from_pb)
            .collect(),
        mcp_servers: mcp_servers
            .into_iter()
            .map(mcp_server_from_pb)
            .collect::<Result<_, _>>()?,
    })
}

fn provider_tool_to_pb(tool: &ProviderTool) -> pb::ProviderTool {
    let ProviderTool {
        provider,
        definition,
    } = tool;
    pb::ProviderTool {
        provider: provider.clone(),
        definition_json: definition.clone(),
    }
}

fn provider_tool_from_pb(tool: pb::ProviderTool) -> ProviderTool {
    let pb::ProviderTool {
        provider,
        definition_json,
    } = tool;
    ProviderTool {
        provider,
        definition: definition_json,
    }
}

fn tool_to_pb(tool: &Tool) -> pb::Tool {
    let Tool {
        name,
        description,
        input_schema,
        requires_approval,
        timeout,
        output_limits,
        category,
        deferred,
        strict,
        mcp,
    } = tool;
    pb::Tool {
        name: name.clone(),
        description: description.clone(),
        input_schema: input_schema.as_deref().map(schema_to_pb),
        requires_approval: *requires_approval,
        timeout: timeout.map(time::duration_to_pb),
        output_limits: output_limits.map(output::to_pb),
        category: category_to_pb(*category).into(),
        deferred: *deferred,
        strict: *strict,
        mcp: mcp.as_ref().map(|McpTool { server, tool }| pb::McpTool {
            server: server.clone(),
            tool: tool.clone(),
        }),
    }
}

fn tool_from_pb(tool: pb::Tool) -> Result<Tool, DecodeError> {
    let at_server = tool.name.clone();
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
        mcp,
    } = tool;
    Ok(Tool {
        name,
        description,
        input_schema: input_schema.map(schema_from_pb).transpose()?,
        requires_approval,
        timeout: time::non_zero_from_pb(timeout)?,
        output_limits: output_limits.map(output::from_pb).transpose()?,
        category: category_from_pb(known("tool category", category)?)?,
        deferred,
        strict,
        mcp: mcp.map(|pb::McpTool { server, tool }| McpTool {
            server,
            tool: Some(tool)
                .filter(|tool| !tool.is_empty())
                .unwrap_or(at_server),
        }),
    })
}

fn mcp_server_to_pb(tools: &McpServerTools) -> pb::McpServerTools {
    let McpServerTools {
        server,
        only,
        prefix,
        requires_approval,
        timeout,
        output_limits,
    } = tools;
    pb::McpServerTools {
        server: server.clone(),
        tools: only.clone(),
        prefix: prefix.clone(),
        requires_approval: *requires_approval,
        timeout: timeout.map(time::duration_to_pb),
        output_limits: output_limits.map(output::to_pb),
    }
}

fn mcp_server_from_pb(tools: pb::McpServerTools) -> Result<McpServerTools, DecodeError> {
    let pb::McpServerTools {
        server,
        tools,
        prefix,
        requires_approval,
        timeout,
        output_limits,
    } = tools;
    Ok(McpServerTools {
        server,
        only: tools,
        prefix,
        requires_approval,
        timeout: time::non_zero_from_pb(timeout)?,
        output_limits: output_limits.map(output::from_pb).transpose()?,
    })
}

/// Converts the executor of a tool.
pub fn executor_to_pb(executor: ToolExecutor) -> pb::ToolExecutor {
    match executor {
        ToolExecutor::Host => pb::ToolExecutor::Host,
        ToolExecutor::Mcp => pb::ToolExecutor::Mcp,
    }
}

/// Converts a schema, which is stored as JSON text.
pub(crate) fn schema_to_pb(json: &str) -> pb::JsonSchema {
    pb::JsonSchema {
        schema: Some(pb::json_schema::Schema::Json(json.to_owned())),
    }
}

/// The text of a stored schema.
pub(super) fn schema_from_pb(schema: pb::JsonSchema) -> Result<String, DecodeError> {
    let pb::JsonSchema { schema } = schema;
    match schema {
        Some(pb::json_schema::Schema::Json(json)) => Ok(json),
        Some(pb::json_schema::Schema::Value(_)) | None => {
            Err(DecodeError::new("schema", "it is not JSON"))
        }
    }
}

fn category_to_pb(category: ToolCategory) -> pb::ContextCategory {
    match category {
        ToolCategory::Tools => pb::ContextCategory::Tools,
        ToolCategory::McpTools => pb::ContextCategory::McpTools,
        ToolCategory::Skills => pb::ContextCategory::Skills,
        ToolCategory::Agents => pb::ContextCategory::Agents,
    }
}

/// The category in which a tool is counted. Other categories are an error.
pub(crate) fn category_from_pb(category: pb::ContextCategory) -> Result<ToolCategory, DecodeError> {
    use pb::ContextCategory as C;
    match category {
        C::Unspecified | C::Tools => Ok(ToolCategory::Tools),
        C::McpTools => Ok(ToolCategory::McpTools),
        C::Skills => Ok(ToolCategory::Skills),
        C::Agents => Ok(ToolCategory::Agents),
        C::SystemPrompt
        | C::DeferredTools
        | C::Memory
        | C::Pinned
        | C::Summary
        | C::User
        | C::Assistant
        | C::Reasoning
        | C::ToolCalls
        | C::ToolResults
        | C::Media
        | C::Queued => Err(DecodeError::new(
            "tool",
            format_args!("its category must not be {}", category.as_str_name()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::arbitrary;

    proptest! {
        #[test]
        fn tools_round_trip(tools in arbitrary::tools()) {
            let bytes = encode(&tools);
            prop_assert_eq!(&encode(&tools), &bytes);
            prop_assert_eq!(decode(&bytes), Ok(tools));
        }
    }

    #[test]
    fn no_tools_take_no_bytes() {
        assert_eq!(encode(&ToolSet::default()), Vec::<u8>::new());
        assert_eq!(decode(&[]), Ok(ToolSet::default()));
    }

    #[test]
    fn a_schema_that_is_not_text_is_an_error() {
        let tool = pb::Tool {
            input_schema: Some(pb::JsonSchema { schema: None }),
            ..pb::Tool::default()
        };
        assert!(
            from_pb(pb::ToolSet {
                host_tools: vec![tool],
                ..pb::ToolSet::default()
            })
            .is_err()
        );
    }
}
