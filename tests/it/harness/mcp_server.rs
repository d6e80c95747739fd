//! An MCP server that tests run, over real HTTP.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use contextd::config::McpConfig;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use secrecy::SecretString;
use serde_json::json;
use tokio::{net::TcpListener, sync::Barrier, task::JoinSet};

/// The token without which the server answers nothing.
pub const TOKEN: &str = "mcp-token-of-the-test";

/// An MCP server with these tools: `echo` gives its argument `text` back, `fails` says that it
/// failed, `fs.read` gives 10,000 lines, `meets` waits until it runs twice, `stalls` never ends.
/// [`McpServer::add`] may add more: `leaks` and `repeats` show the token, as an error and as a result,
/// `traces` gives the `traceparent` of the call.
pub struct McpServer {
    address: SocketAddr,
    played: Arc<Played>,
    serving: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct Played {
    begun: Mutex<Vec<String>>,
    cancelled: Mutex<Vec<String>>,
    lists: Mutex<usize>,
    more: Mutex<Vec<&'static str>>,
    peers: Mutex<Vec<rmcp::Peer<RoleServer>>>,
    both: Barrier,
}

#[derive(Clone)]
struct Handler(Arc<Played>);

impl McpServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let played = Arc::new(Played {
            begun: Mutex::default(),
            cancelled: Mutex::default(),
            lists: Mutex::default(),
            more: Mutex::default(),
            peers: Mutex::default(),
            both: Barrier::new(2),
        });
        let serving = tokio::spawn(serve(listener, Handler(Arc::clone(&played))));
        Self {
            address,
            played,
            serving: Mutex::new(Some(serving)),
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// How it is reached, with a call's time.
    pub fn config(&self, call_timeout: Duration) -> McpConfig {
        McpConfig {
            url: self.url(),
            token: Some(SecretString::from(TOKEN)),
            call_timeout,
            ..McpConfig::default()
        }
    }

    /// The tools whose calls were begun, in order.
    pub fn begun(&self) -> Vec<String> {
        self.played.begun.lock().unwrap().clone()
    }

    /// The tools whose calls were cancelled by the client.
    pub fn cancelled(&self) -> Vec<String> {
        self.played.cancelled.lock().unwrap().clone()
    }

    /// How often its tools were listed.
    pub fn lists(&self) -> usize {
        *self.played.lists.lock().unwrap()
    }

    /// Has one more tool from now on, and says so.
    pub async fn add(&self, tool: &'static str) {
        self.played.more.lock().unwrap().push(tool);
        let peers = self.played.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = peer.notify_tool_list_changed().await;
        }
    }

    /// Ends it, with all connections.
    pub fn die(&self) {
        if let Some(serving) = self.serving.lock().unwrap().take() {
            serving.abort();
        }
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.die();
    }
}

async fn serve(listener: TcpListener, handler: Handler) {
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let service = service.clone();
        let answer = service_fn(move |request: hyper::Request<Incoming>| {
            let service = service.clone();
            async move {
                let token = request.headers().get(hyper::header::AUTHORIZATION);
                let expected = format!("Bearer {TOKEN}");
                assert_eq!(token.unwrap().to_str().unwrap(), expected);
                Ok::<_, Infallible>(service.handle(request).await)
            }
        });
        connections.spawn(async move {
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), answer)
                .await;
        });
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        *self.0.lists.lock().unwrap() += 1;
        self.0.peers.lock().unwrap().push(context.peer);
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let schema = Arc::new(schema.as_object().unwrap().clone());
        let more = self.0.more.lock().unwrap().clone();
        let names = ["echo", "fails", "fs.read", "meets", "stalls"];
        let tools = names.into_iter().chain(more);
        let tools = tools.map(|name| Tool::new(name, format!("does {name}"), Arc::clone(&schema)));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        self.0.begun.lock().unwrap().push(name.clone());
        let text = |text: String| vec![ContentBlock::text(text)];
        let result = match name.as_str() {
            "echo" => {
                let arguments = request.arguments.unwrap_or_default();
                let said = arguments.get("text").and_then(|text| text.as_str());
                CallToolResult::success(text(said.unwrap_or("nothing").to_owned()))
            }
            "fails" => CallToolResult::error(text("no such city".to_owned())),
            "leaks" => {
                let said = format!("you sent Bearer {TOKEN}");
                return Err(ErrorData::invalid_params(said, None));
            }
            "repeats" => CallToolResult::success(text(format!("you sent Bearer {TOKEN}"))),
            "traces" => {
                let meta = context.meta.get_traceparent();
                CallToolResult::success(text(meta.unwrap_or("none").to_owned()))
            }
            "fs.read" => CallToolResult::success(text("line\n".repeat(10_000))),
            "meets" => {
                self.0.both.wait().await;
                CallToolResult::success(text("met".to_owned()))
            }
            "stalls" => {
                context.ct.cancelled().await;
                self.0.cancelled.lock().unwrap().push(name);
                return Err(ErrorData::internal_error("cancelled", None));
            }
            other => {
                return Err(ErrorData::invalid_params(format!("no tool {other}"), None));
            }
        };
        Ok(result.into())
    }
}
