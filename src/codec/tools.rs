//! Tool sets and the limits of tool output, to and from bytes and their wire form.

use prost::Message as _;

use crate::{
    model::{Keep, McpServerTools, McpTool, OutputLimits, ProviderTool, Tool, ToolCategory, ToolExecutor, ToolSet},
    pb,
};

use super::{
    DecodeError,
    field::{Field as _, choices, messages},
    read,
};

/// Encodes a tool set. Equal sets have equal bytes.
pub fn encode(tools: &ToolSet) -> Vec<u8> {
    let tools: pb::ToolSet = tools.to_field();
    tools.encode_to_vec()
}

/// The id of a tool set: the hash of its encoded bytes.
pub fn content_id(encoded: &[u8]) -> String {
    crate::model::derive::blob(encoded).into_string()
}

/// Decodes a tool set.
pub fn decode(bytes: &[u8]) -> Result<ToolSet, DecodeError> {
    let tools: pb::ToolSet = read("tool set", bytes)?;
    ToolSet::from_field("tool set", tools)
}

choices! {
    ToolExecutor = ToolExecutor { Host, Mcp }
    ToolCategory = ContextCategory {
        Tools, McpTools, Skills, Agents;
        Unspecified => Tools;
        not SystemPrompt, DeferredTools, Memory, Pinned, Summary, User, Assistant, Reasoning,
            ToolCalls, ToolResults, Media, Queued
    }
    Keep = KeepPart { Head, HeadAndTail }
}

messages! {
    ToolSet = ToolSet { tools = host_tools, provider_tools, mcp_servers, }
    Tool = Tool {
        name,
        description,
        input_schema,
        requires_approval,
        timeout via non_zero,
        output_limits,
        category,
        deferred,
        strict,
        mcp,
    }
    McpTool = McpTool { server, tool, }
    ProviderTool = ProviderTool { provider, definition = definition_json, }
    McpServerTools = McpServerTools {
        server,
        only = tools,
        prefix,
        requires_approval,
        timeout via non_zero,
        output_limits,
    }
    OutputLimits = ToolOutputLimits {
        max_chars = max_output_chars,
        max_lines,
        max_line_length,
        max_matches,
        keep,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{arbitrary, field::round_trip};

    proptest! {
        #[test]
        fn output_limits_round_trip(limits in arbitrary::output_limits()) {
            prop_assert_eq!(round_trip::<_, pb::ToolOutputLimits>(&limits), Ok(limits));
        }

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
        let tool = pb::Tool { input_schema: Some(pb::JsonSchema { schema: None }), ..pb::Tool::default() };
        let tools = pb::ToolSet { host_tools: vec![tool], ..pb::ToolSet::default() };
        assert!(ToolSet::from_field("tool set", tools).is_err());
    }
}
