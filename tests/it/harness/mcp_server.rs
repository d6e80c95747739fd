//! An MCP server for tests, over real HTTP.

use std::{
    borrow::Cow,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use contextd::config::{McpConfig, OauthConfig};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult, InitializeRequestParams,
        InitializeResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        SubscriptionFilter, Tool,
    },
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use secrecy::SecretString;
use serde_json::json;
use tokio::{net::TcpListener, sync::Barrier, task::JoinSet};

/// The token that every request needs.
pub const TOKEN: &str = "mcp-token-of-the-test";

/// The OAuth client that can get tokens.
pub const CLIENT: &str = "contextd of the test";
pub const CLIENT_SECRET: &str = "client-secret-of-the-test";

/// An image of one pixel, in base64.
pub const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

/// An MCP server with these tools: `echo` returns its argument `text`, `fails` returns an error, `fs.read` returns
/// 10,000 lines, `meets` waits until two calls of it are running, `stalls` never ends. [`McpServer::add`] may add more:
/// `leaks` and `repeats` return the token, as an error and as a result; `traces` returns the `traceparent` of the call;
/// `structured` returns structured content and a text for display; `draws` returns an image.
pub struct McpServer {
    address: SocketAddr,
    played: Arc<Played>,
    serving: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// Variations of a server's behavior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Habits {
    pub speaks: Speaks,
    pub lost_session: LostSession,
    pub pages: Pages,
    /// Requires tokens from the token endpoint of this server.
    pub oauth: bool,
}

/// The protocol revisions that a server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speaks {
    /// All.
    #[default]
    All,
    /// Only those with a handshake. Unknown requests are refused.
    Handshake,
    /// Only those with a handshake. Unknown requests get no response.
    HandshakeAlone,
    /// 2026-07-28 only.
    Stateless,
}

/// The response to a request with an unknown session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LostSession {
    /// 404, as the specification requires.
    #[default]
    NotFound,
    /// 400 with an error without a request id.
    BadRequest,
    /// 400 with a text.
    PlainBadRequest,
}

/// The pagination of the list of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    #[default]
    One,
    /// The cursor of the next page is empty.
    EmptyCursor,
    /// Each page is the first one, and names the same next page.
    Stuck,
    /// Each page is the first one, and names another next page.
    Growing,
}

struct Played {
    habits: Habits,
    begun: Mutex<Vec<String>>,
    cancelled: Mutex<Vec<String>>,
    discovered: Mutex<usize>,
    initialized: Mutex<usize>,
    lists: Mutex<usize>,
    more: Mutex<Vec<&'static str>>,
    peers: Mutex<Vec<rmcp::Peer<RoleServer>>>,
    sinks: Mutex<Vec<SubscriptionSink>>,
    both: Barrier,
    /// The number of issued tokens. The last one is valid unless it was revoked.
    issued: Mutex<usize>,
    revoked: Mutex<usize>,
}

#[derive(Clone)]
struct Handler(Arc<Played>);

impl McpServer {
    pub async fn start() -> Self {
        Self::with(Habits::default()).await
    }

    pub async fn with(habits: Habits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let played = Arc::new(Played {
            habits,
            begun: Mutex::default(),
            cancelled: Mutex::default(),
            discovered: Mutex::default(),
            initialized: Mutex::default(),
            lists: Mutex::default(),
            more: Mutex::default(),
            peers: Mutex::default(),
            sinks: Mutex::default(),
            both: Barrier::new(2),
            issued: Mutex::default(),
            revoked: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, Handler(Arc::clone(&played))));
        Self { address, played, serving: Mutex::new(Some(serving)) }
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The configuration of the server, with a call timeout.
    pub fn config(&self, call_timeout: Duration) -> McpConfig {
        let oauth = self.played.habits.oauth.then(|| OauthConfig {
            token_url: format!("http://{}/token", self.address),
            client_id: CLIENT.to_owned(),
            client_secret: Some(SecretString::from(CLIENT_SECRET)),
            scope: "tools".to_owned(),
            ..OauthConfig::default()
        });
        McpConfig {
            url: self.url(),
            token: oauth.is_none().then(|| SecretString::from(TOKEN)),
            oauth,
            call_timeout,
            ..McpConfig::default()
        }
    }

    /// The tools whose calls started, in order.
    pub fn begun(&self) -> Vec<String> {
        self.played.begun.lock().unwrap().clone()
    }

    /// The tools whose calls the client cancelled.
    pub fn cancelled(&self) -> Vec<String> {
        self.played.cancelled.lock().unwrap().clone()
    }

    /// How often the tools were listed.
    pub fn lists(&self) -> usize {
        *self.played.lists.lock().unwrap()
    }

    /// Adds a tool and announces the change.
    pub async fn add(&self, tool: &'static str) {
        self.played.more.lock().unwrap().push(tool);
        let peers = self.played.peers.lock().unwrap().clone();
        for peer in peers {
            let _ = peer.notify_tool_list_changed().await;
        }
        let sinks = self.played.sinks.lock().unwrap().clone();
        for sink in sinks {
            let _ = sink.notify_tool_list_changed().await;
        }
    }

    /// How often its capabilities were requested, and how often a session was opened.
    pub fn opened(&self) -> (usize, usize) {
        let discovered = *self.played.discovered.lock().unwrap();
        (discovered, *self.played.initialized.lock().unwrap())
    }

    /// Stops the server with all sessions and connections, and starts it again at the same address.
    pub async fn restart(&self) {
        let serving = self.serving.lock().unwrap().take().unwrap();
        serving.abort();
        let _ = serving.await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        let serving = tokio::spawn(serve(listener, Handler(Arc::clone(&self.played))));
        *self.serving.lock().unwrap() = Some(serving);
    }

    /// The number of issued tokens.
    pub fn issued(&self) -> usize {
        *self.played.issued.lock().unwrap()
    }

    /// Revokes all tokens issued so far.
    pub fn revoke(&self) {
        *self.played.revoked.lock().unwrap() = self.issued();
    }

    /// Stops the server with all connections.
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

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn serve(listener: TcpListener, handler: Handler) {
    let played = Arc::clone(&handler.0);
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (service, played) = (service.clone(), Arc::clone(&played));
        let answer = service_fn(move |request: Request<Incoming>| {
            let (service, played) = (service.clone(), Arc::clone(&played));
            async move {
                if request.uri().path() == "/token" {
                    return Ok::<_, Infallible>(played.token(request).await);
                }
                if !played.is_authorized(&request) {
                    return Ok(unauthorized());
                }
                if let Some(refused) = played.refused(&request).await {
                    return Ok(refused);
                }
                Ok(played.with_habits(service.handle(request).await))
            }
        });
        connections.spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

impl Played {
    /// Issues a token.
    async fn token(&self, request: Request<Incoming>) -> Answer {
        let authorization = request.headers().get(header::AUTHORIZATION).unwrap();
        let expected = STANDARD.encode(format!("{}:{CLIENT_SECRET}", CLIENT.replace(' ', "+")));
        assert_eq!(authorization.to_str().unwrap(), format!("Basic {expected}"));
        let form = request.into_body().collect().await.unwrap().to_bytes();
        let form = std::str::from_utf8(&form).unwrap().to_owned();
        assert!(form.starts_with("grant_type=client_credentials&resource=http"), "{form}");
        assert!(form.ends_with("&scope=tools"), "{form}");
        let token = {
            let mut issued = self.issued.lock().unwrap();
            *issued += 1;
            issued_token(*issued)
        };
        let body = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
        let mut answer = answered("application/json", body.to_string());
        *answer.status_mut() = StatusCode::OK;
        answer
    }

    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let token = request.headers().get(header::AUTHORIZATION);
        let token = token.map(|token| token.to_str().unwrap());
        let (issued, revoked) = (*self.issued.lock().unwrap(), *self.revoked.lock().unwrap());
        let is_issued =
            (revoked + 1..=issued).any(|number| token == Some(format!("Bearer {}", issued_token(number)).as_str()));
        if !self.habits.oauth {
            assert_eq!(token, Some(format!("Bearer {TOKEN}").as_str()));
        }
        !self.habits.oauth || is_issued
    }

    /// The response to a request of an unsupported revision. Returns `None` if the revision is supported.
    async fn refused(&self, request: &Request<Incoming>) -> Option<Answer> {
        // Since 2026-07-28, requests have their method in a header.
        let is_stateless = request.headers().contains_key("mcp-method");
        match self.habits.speaks {
            Speaks::Handshake if is_stateless => Some(bad_request()),
            Speaks::HandshakeAlone if is_stateless => std::future::pending().await,
            Speaks::Stateless if !is_stateless => Some(bad_request()),
            Speaks::All | Speaks::Handshake | Speaks::HandshakeAlone | Speaks::Stateless => None,
        }
    }

    fn with_habits(&self, answer: Answer) -> Answer {
        match self.habits.lost_session {
            LostSession::BadRequest if answer.status() == StatusCode::NOT_FOUND => bad_request(),
            LostSession::PlainBadRequest if answer.status() == StatusCode::NOT_FOUND => {
                answered("text/plain", "Bad Request: No valid session ID provided".to_owned())
            }
            LostSession::NotFound | LostSession::BadRequest | LostSession::PlainBadRequest => answer,
        }
    }
}

fn issued_token(number: usize) -> String {
    format!("issued-token-{number}")
}

fn unauthorized() -> Answer {
    let mut answer = answered("text/plain", "Unauthorized".to_owned());
    *answer.status_mut() = StatusCode::UNAUTHORIZED;
    let challenge = header::HeaderValue::from_static("Bearer error=\"invalid_token\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    answer
}

/// The error for an unknown session, as in the examples of the TypeScript SDK.
fn bad_request() -> Answer {
    let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    let error = json!({"jsonrpc": "2.0", "error": error, "id": null});
    answered("application/json", error.to_string())
}

fn answered(content_type: &str, body: String) -> Answer {
    Response::builder()
        .status(StatusCode::BAD_REQUEST)
        .header(header::CONTENT_TYPE, content_type)
        .body(Full::new(Bytes::from(body)).boxed())
        .unwrap()
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(tools.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self.0.habits.speaks {
            Speaks::All => ProtocolVersion::KNOWN_VERSIONS,
            Speaks::Handshake | Speaks::HandshakeAlone => ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25),
            Speaks::Stateless => &[ProtocolVersion::V_2026_07_28],
        })
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        *self.0.initialized.lock().unwrap() += 1;
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        *self.0.discovered.lock().unwrap() += 1;
        let supported = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(supported, self.get_info()))
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.0.sinks.lock().unwrap().push(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let lists = {
            let mut lists = self.0.lists.lock().unwrap();
            *lists += 1;
            *lists
        };
        self.0.peers.lock().unwrap().push(context.peer);
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let schema = Arc::new(schema.as_object().unwrap().clone());
        let more = self.0.more.lock().unwrap().clone();
        let names = ["echo", "fails", "fs.read", "meets", "stalls"];
        let tools = names.into_iter().chain(more);
        let tools = tools.map(|name| Tool::new(name, format!("does {name}"), Arc::clone(&schema)));
        let mut page = ListToolsResult::with_all_items(tools.collect());
        page.next_cursor = match self.0.habits.pages {
            Pages::One => None,
            Pages::EmptyCursor => Some(String::new()),
            Pages::Stuck => Some("next".to_owned()),
            Pages::Growing => Some(format!("page {lists}")),
        };
        Ok(page)
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
            "repeats" if self.0.habits.oauth => {
                let token = issued_token(*self.0.issued.lock().unwrap());
                CallToolResult::success(text(format!("you sent Bearer {token}")))
            }
            "repeats" => CallToolResult::success(text(format!("you sent Bearer {TOKEN}"))),
            "traces" => {
                let meta = context.meta.get_traceparent();
                CallToolResult::success(text(meta.unwrap_or("none").to_owned()))
            }
            "structured" => {
                let mut result = CallToolResult::success(text("Two cities found.".to_owned()));
                result.structured_content = Some(json!({"cities": ["Bonn", "Ulm"]}));
                result
            }
            "draws" => CallToolResult::success(vec![
                ContentBlock::text("Here it is."),
                ContentBlock::image(PICTURE, "image/png"),
            ]),
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
