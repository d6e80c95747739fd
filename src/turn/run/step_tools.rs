//! The tools that a step is sent.

use crate::model::{SessionConfig, ToolSet, command::TurnRequest};

/// The last step of a turn whose time is up has none.
const NO_TOOLS: &ToolSet = &ToolSet {
    tools: Vec::new(),
    provider_tools: Vec::new(),
    mcp_servers: Vec::new(),
};

/// The tools that a step is sent: none where the turn's time is up, else the turn's own or those
/// of the configuration.
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
