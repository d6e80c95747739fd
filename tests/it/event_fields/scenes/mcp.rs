//! A turn with a tool of an MCP server.

use contextd::pb;
use serde_json::json;

use crate::harness::{
    Host, Options,
    host::{MODEL, answering, call},
    mcp_server::McpServer,
    requests::turn,
};

/// A call that contextd makes, with a result for the model and a text for the user.
pub(super) async fn call_of_a_server() -> Vec<pb::Event> {
    let server = McpServer::start().await;
    server.add("structured").await;
    let answers = [json!([call("structured")]), json!([{"text": "Done."}])];
    let options = Options {
        mcp: vec![("played".to_owned(), server.config(std::time::Duration::from_secs(60)))],
        ..answering(&answers)
    };
    let host = Host::with(options).await;
    let selection = pb::McpServerTools { server: "played".to_owned(), ..pb::McpServerTools::default() };
    let tools = pb::ToolSet { mcp_servers: vec![selection], ..pb::ToolSet::default() };
    let request = pb::ExecuteTurnRequest { tools: Some(tools), ..turn("mcp", MODEL, "Which cities?") };
    host.run(request).await
}
