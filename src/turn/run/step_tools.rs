//! The tools that are sent to the model in a step.

use crate::model::{SessionConfig, ToolSet, command::TurnRequest};

/// For the last step of a turn whose time has passed.
const NO_TOOLS: &ToolSet = &ToolSet {
    tools: Vec::new(),
    provider_tools: Vec::new(),
    mcp_servers: Vec::new(),
};

/// The tools that are sent to the model in a step: none if the turn's time has passed, otherwise those
/// of the turn or of the configuration.
pub(in crate::turn) fn tools_in_force<'a>(
    request: &'a TurnRequest,
    config: &'a SessionConfig,
    is_late: bool,
) -> &'a ToolSet {
    match &request.tools {
        _ if is_late => NO_TOOLS,
        Some(tools) => tools,
        None => &config.tools,
    }
}
