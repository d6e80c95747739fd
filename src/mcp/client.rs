//! The client of one MCP server over streamable HTTP: one session, opened by the first use and
//! again when it has ended.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue};
use reqwest::{Url, redirect};
use rmcp::{
    ClientHandler, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
        ContentBlock, Implementation, PaginatedRequestParams, RequestParamsMeta as _,
        ResourceContents, Tool,
    },
    service::{NotificationContext, Peer, RunningService, serve_client},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Mutex, time::timeout};

use super::{CallError, Listed, Output, Settings, Unusable, arguments};
use crate::telemetry::Trace;

/// How long opening a session may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Pages of a list of tools.
const MOST_PAGES: usize = 64;

/// Bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// Characters of a server's error that are passed on.
const ERROR_CHARS: usize = 500;

/// Connections that are kept open without a use, and for how long.
const MAX_IDLE_CONNECTIONS: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

type Session = RunningService<RoleClient, Listener>;

pub(super) struct Client {
    http: reqwest::Client,
    /// What no text of the server may hold that is passed on.
    secrets: Vec<SecretString>,
    url: String,
    max_result_bytes: usize,
    session: Mutex<Option<Session>>,
    changed: Arc<AtomicBool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Result<Self, Unusable> {
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, secret) in &settings.headers {
            secrets.extend(words(secret.expose_secret()));
            let value = HeaderValue::from_str(secret.expose_secret());
            let mut value = value.map_err(|_| Unusable::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let url: Url = settings
            .url
            .parse()
            .map_err(|error| Unusable::Http(format!("{error}")))?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("contextd/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(settings.connect_timeout)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .http2_keep_alive_interval(KEEPALIVE)
            // A redirect would take the key somewhere else.
            .redirect(redirect::Policy::none())
            .referer(false);
        if url.scheme() == "http" {
            // Without TLS the system's authorities are not needed, which may be missing.
            builder = builder.tls_certs_only([]);
        }
        let http = builder
            .build()
            .map_err(|error| Unusable::Http(format!("{}", error.without_url())))?;
        Ok(Self {
            http,
            secrets,
            url: settings.url.clone(),
            max_result_bytes: settings.max_result_bytes,
            session: Mutex::new(None),
            changed: Arc::default(),
        })
    }

    /// Whether the server announced another list of tools since the last look.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// All tools, page by page.
    pub(super) async fn list(&self, most: usize) -> Result<Vec<Listed>, String> {
        let server = self.server().await?;
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = server.list_tools(Some(page)).await;
            let page = page.map_err(|error| self.failure(error))?;
            tools.extend(page.tools.into_iter().map(|tool| self.listed(tool)));
            if tools.len() > most {
                return Err(format!("it lists more than {most} tools"));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(format!("its list has more than {MOST_PAGES} pages"))
    }

    /// Calls a tool. A call that is dropped is cancelled at the server.
    pub(super) async fn call(&self, tool: &str, arguments: &str) -> Result<Output, CallError> {
        let arguments = arguments::object(arguments).map_err(CallError::NotRun)?;
        let server = self.server().await.map_err(CallError::NotRun)?;
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = in_trace(request);
        match server.call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => Ok(self.output(result)),
            Ok(CallToolResponse::InputRequired(_)) => Err(CallError::Refused(
                "it asks for input, which contextd does not give".to_owned(),
            )),
            Ok(CallToolResponse::Task(_)) => Err(CallError::Unknown(
                "it runs on as a task, whose result contextd does not fetch".to_owned(),
            )),
            Ok(_) => Err(CallError::Unknown(
                "the answer is of an unknown kind".to_owned(),
            )),
            Err(ServiceError::McpError(error)) => {
                Err(CallError::Refused(self.shown(&error.message)))
            }
            Err(error) => Err(CallError::Unknown(self.failure(error))),
        }
    }

    /// The server, with an open session.
    async fn server(&self) -> Result<Peer<RoleClient>, String> {
        let mut session = self.session.lock().await;
        if let Some(open) = session
            .as_ref()
            .filter(|open| !open.is_closed() && !open.peer().is_transport_closed())
        {
            return Ok(open.peer().clone());
        }
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .max_json_response_size(self.max_result_bytes)
            .max_sse_event_size(self.max_result_bytes)
            .max_error_response_size(MAX_ERROR_BYTES);
        let transport = StreamableHttpClientTransport::with_client(self.http.clone(), config);
        let listener = Listener {
            changed: Arc::clone(&self.changed),
        };
        let opened = match timeout(OPEN_TIMEOUT, serve_client(listener, transport)).await {
            Ok(Ok(opened)) => opened,
            // The text of the library's error may hold the address, and what the server said.
            Ok(Err(error)) => {
                let error = self.shown(&error.to_string());
                tracing::debug!(error, "an MCP server opened no session");
                return Err("it opened no session".to_owned());
            }
            Err(_) => return Err(format!("no session within {} s", OPEN_TIMEOUT.as_secs())),
        };
        let peer = opened.peer().clone();
        *session = Some(opened);
        Ok(peer)
    }

    fn listed(&self, tool: Tool) -> Listed {
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        Listed {
            name: tool.name.into_owned(),
            description: self.scrubbed(tool.description.unwrap_or_default().into_owned()),
            input_schema: self.scrubbed(schema.to_string()),
        }
    }

    /// The texts of a result. Structured content is taken only where there is no other: servers
    /// repeat it as text.
    fn output(&self, result: CallToolResult) -> Output {
        let mut texts: Vec<String> = result.content.into_iter().map(text).collect();
        if texts.is_empty()
            && let Some(structured) = result.structured_content
        {
            texts.push(structured.to_string());
        }
        Output {
            texts: texts.into_iter().map(|text| self.scrubbed(text)).collect(),
            is_error: result.is_error.unwrap_or(false),
        }
    }

    /// What went wrong, without addresses: the text of a transport's error may hold one.
    fn failure(&self, error: ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => self.shown(&error.message),
            ServiceError::TransportSend(_) => {
                "the connection failed, or the answer is too large".into()
            }
            ServiceError::TransportClosed => "the connection ended".into(),
            ServiceError::Timeout { .. } => "no answer in time".into(),
            ServiceError::Cancelled { .. } => "it was cancelled".into(),
            ServiceError::UnexpectedResponse
            | ServiceError::SubscriptionLagged { .. }
            | ServiceError::InputRequiredRoundsExceeded { .. }
            | _ => "the answer cannot be understood".into(),
        }
    }

    /// The beginning of a server's error.
    fn shown(&self, error: &str) -> String {
        // The other way round, a part of a secret could be left at the cut.
        let scrubbed = self.scrubbed(error.to_owned());
        scrubbed.chars().take(ERROR_CHARS).collect()
    }

    /// A server may repeat what it was sent.
    fn scrubbed(&self, text: String) -> String {
        let hide =
            |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        self.secrets.iter().fold(text, hide)
    }
}

/// What the server announces.
struct Listener {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("contextd", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

fn text(block: ContentBlock) -> String {
    let left_out = |what: &str, media_type: &str| format!("[Left out: {what} ({media_type})]");
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("a picture", &image.mime_type),
        ContentBlock::Audio(audio) => left_out("a recording", &audio.mime_type),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { mime_type, .. } => {
                left_out("a file", &mime_type.unwrap_or_default())
            }
            #[allow(unreachable_patterns, reason = "the library may add kinds")]
            _ => left_out("a resource", "of an unknown kind"),
        },
        ContentBlock::ResourceLink(link) => link.uri,
        #[allow(unreachable_patterns, reason = "the library may add kinds")]
        _ => left_out("content", "of an unknown kind"),
    }
}

/// A call with where it is made from, as far as its server may know. MCP has that in the request: the
/// headers are those of the session.
fn in_trace(mut request: CallToolRequestParams) -> CallToolRequestParams {
    for (name, value) in &Trace::current().provider_headers() {
        if let Ok(value) = value.to_str() {
            let meta = &mut request.meta_or_default().0.0;
            meta.insert(name.to_string(), value.into());
        }
    }
    request
}

/// The words of a header that are worth hiding: not `Bearer`, and nothing so short that it hides
/// ordinary text.
fn words(value: &str) -> impl Iterator<Item = SecretString> {
    const LEAST: usize = 8;
    value
        .split_whitespace()
        .filter(|word| word.len() >= LEAST)
        .map(SecretString::from)
}
