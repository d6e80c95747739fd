//! MCP servers built with the official SDKs, restarted between two turns. The server of the Rust SDK runs in `mcp.rs`;
//! those of other languages are started by `script/mcp-check`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use contextd::{
    config::McpConfig,
    pb::{self, ToolOutcome},
};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{
    Host, Options,
    events::results,
    host::{MODEL, answering, until},
    mcp_server::{Habits, McpServer},
    requests::turn,
};

/// The folder of the programs. Each serves on the port that it is given.
const FOLDER: &str = "CONTEXTD_TEST_MCP_SDKS";

/// A server built with an SDK.
struct Served {
    program: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Served {
    async fn start(program: PathBuf) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = spawn(&program, address);
        let served = Self { program, address, child };
        served.ready().await;
        served
    }

    async fn restart(&mut self) {
        self.stop();
        self.child = spawn(&self.program, self.address);
        self.ready().await;
    }

    async fn ready(&self) {
        until("the server to listen", || async { TcpStream::connect(self.address).await.is_ok() }).await;
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(program: &PathBuf, address: SocketAddr) -> Child {
    Command::new(program).arg(address.port().to_string()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The result of the only call of a turn.
async fn gave(host: &Host, request: pb::ExecuteTurnRequest) -> (ToolOutcome, Vec<pb::Part>) {
    let events = host.run(request).await;
    let result = results(&events)[0];
    (result.outcome(), result.parts.clone())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers of other SDKs: script/mcp-check"]
async fn turns_go_on_where_servers_of_the_official_sdks_are_restarted() {
    let folder = std::env::var_os(FOLDER).expect("script/mcp-check sets the folder");
    let mut programs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.sort();
    assert!(!programs.is_empty(), "no server");
    // Servers that require a token accept those of this server.
    let issuer = McpServer::with(Habits { oauth: true, ..Habits::default() }).await;
    for program in programs {
        let name = program.file_name().unwrap().display().to_string();
        let mut served = Served::start(program).await;
        let config =
            McpConfig { url: format!("http://{}/mcp", served.address), ..issuer.config(Duration::from_secs(15)) };
        let call = json!({"tool_call": {"name": "echo", "arguments": {"text": "hi"}}});
        let options = Options {
            mcp: vec![("sdk".to_owned(), config)],
            ..answering(&[json!([call]), json!([{"text": "Done."}])])
        };
        let host = Host::with(options).await;
        let tools = pb::ToolSet {
            mcp_servers: vec![pb::McpServerTools { server: "sdk".to_owned(), ..pb::McpServerTools::default() }],
            ..pb::ToolSet::default()
        };
        let first = pb::ExecuteTurnRequest {
            session: Some(pb::Session { tools: Some(tools), ..pb::Session::default() }),
            ..turn("s", MODEL, "Hello")
        };
        let hi = pb::Part { content: Some(pb::part::Content::Text("hi".to_owned())), ..pb::Part::default() };
        let expected = (ToolOutcome::Success, vec![hi]);
        assert_eq!(gave(&host, first).await, expected, "{name}");
        served.restart().await;
        let again = turn("s", MODEL, "Again");
        assert_eq!(gave(&host, again).await, expected, "{name}, restarted");
        println!("{name}: turns go on");
    }
    assert!(issuer.issued() > 0);
}
