//! Which tenants can use an MCP server.

use std::time::Duration;

use contextd::{
    config::McpConfig,
    model::Access,
    pb::{self, turn_service_client::TurnServiceClient},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Key, KeysFile, connect};
use crate::harness::{
    Options, Replica, TestDatabase,
    errors::refusal,
    events::{all, results},
    host::{MODEL, script, until},
    mcp_server::McpServer,
    requests::turn,
};

/// Longer than any call that completes.
const AMPLE: Duration = Duration::from_secs(60);

fn call(tool: &str) -> Value {
    json!({"tool_call": {"name": tool, "arguments": {}}})
}

async fn replica(database: &TestDatabase, keys: &KeysFile, server: McpConfig, answers: &[Value]) -> Replica {
    let options = Options { mcp: vec![("played".to_owned(), server)], ..keys.required().script("it", script(answers)) };
    Replica::start(database, options).await
}

fn request(session: &str, text: &str) -> pb::ExecuteTurnRequest {
    let server = pb::McpServerTools { server: "played".to_owned(), ..pb::McpServerTools::default() };
    pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { mcp_servers: vec![server], ..pb::ToolSet::default() }),
        ..turn(session, MODEL, text)
    }
}

/// Runs a turn with one call. Returns the outcome and the text of its result.
async fn run(replica: &Replica, key: &Key) -> Result<(pb::ToolOutcome, String), Status> {
    let mut turns = TurnServiceClient::new(connect(replica, key).await);
    let mut stream = turns.execute_turn(request("s", "Hello")).await?.into_inner();
    let events = all(&mut stream).await;
    let result = results(&events)[0];
    let Some(pb::part::Content::Text(text)) = &result.parts[0].content else { panic!("no text: {result:?}") };
    Ok((result.outcome(), text.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_server_is_found_only_by_the_tenants_that_it_names() {
    let server = McpServer::start().await;
    let mut keys = KeysFile::new();
    let (named, other) = (keys.add("named", Access::Write), keys.add("other", Access::Write));
    let answers = [json!([call("echo")]), json!([{"text": "Done."}])];
    for (tenants, others_may) in [(vec!["named"], false), (vec!["*"], true)] {
        let config = McpConfig { tenants: tenants.into_iter().map(str::to_owned).collect(), ..server.config(AMPLE) };
        let database = TestDatabase::new().await;
        let replica = replica(&database, &keys, config, &answers).await;
        let gave = (pb::ToolOutcome::Success, "nothing".to_owned());
        assert_eq!(run(&replica, &named).await.unwrap(), gave);
        match run(&replica, &other).await {
            Ok(result) => assert!(others_may && result == gave),
            Err(status) => {
                let refusal = refusal(&status);
                assert_eq!(refusal.code, Code::NotFound);
                assert_eq!(refusal.reason, "MCP_SERVER_NOT_FOUND");
                assert!(!others_may);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_server_that_names_no_tenant_is_found_by_none() {
    let server = McpServer::start().await;
    let mut keys = KeysFile::new();
    let key = keys.add("named", Access::Write);
    let answers = [json!([call("echo")]), json!([{"text": "Done."}])];
    let database = TestDatabase::new().await;
    let replica = replica(&database, &keys, server.config(AMPLE), &answers).await;
    let status = run(&replica, &key).await.unwrap_err();
    assert_eq!(refusal(&status).reason, "MCP_SERVER_NOT_FOUND");
    assert_eq!(server.begun(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_tenant_leave_places_of_an_mcp_server_to_others() {
    let server = McpServer::start().await;
    let mut keys = KeysFile::new();
    let (greedy, modest) = (keys.add("greedy", Access::Write), keys.add("modest", Access::Write));
    let places = 16;
    let config = McpConfig { tenants: vec!["*".to_owned()], max_calls: places, ..server.config(AMPLE) };
    let steps = json!({"steps": [
        {"when": {"call": 0, "user_contains": "everything"}, "say": vec![call("stalls"); places + 4]},
        {"when": {"call": 0}, "say": [call("echo")]},
        {"when": {"call": 1}, "say": [{"text": "Done."}]},
    ]});
    let options =
        Options { mcp: vec![("played".to_owned(), config)], ..keys.required().script("it", steps.to_string()) };
    let database = TestDatabase::new().await;
    let replica = Replica::start(&database, options).await;
    let mut turns = TurnServiceClient::new(connect(&replica, &greedy).await);
    let asks = request("s", "I want everything");
    let _stream = turns.execute_turn(asks).await.unwrap().into_inner();
    until("the calls to begin", || async { server.begun().len() == places - 1 }).await;
    let gave = (pb::ToolOutcome::Success, "nothing".to_owned());
    assert_eq!(run(&replica, &modest).await.unwrap(), gave);
    assert_eq!(server.begun().len(), places);
}
