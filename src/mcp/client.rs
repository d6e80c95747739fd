//! The client of one MCP server over streamable HTTP: lists its tools and calls them.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::{Url, redirect};
use rmcp::{
    RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorCode, ErrorData, PaginatedRequestParams, RequestParamsMeta as _,
        Tool,
    },
    service::Peer,
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    CallError, ListedTool, MAX_TOOLS, Output, SettingsError, arguments,
    listing::{Listing, Next},
    oauth::Tokens,
    output::output,
    secrets::Secrets,
    session::{ExecutionStatus, Session, Sessions},
    transport::{self, Http},
};
use crate::{
    config::{Environment, McpConfig},
    telemetry::Trace,
};

/// The maximum number of idle connections, and how long they are kept open.
const MAX_IDLE_CONNECTIONS: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a silent connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The library's error for a call whose session was reinitialized before its response arrived.
const LOST_WITH_SESSION: &str = "streamable HTTP session was re-initialized before the response arrived";

pub(super) struct Client {
    /// Removed from all texts of the server that are passed on.
    secrets: Secrets,
    sessions: Sessions,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(config: &McpConfig, environment: &Environment) -> Result<Self, SettingsError> {
        let mut secrets = Secrets::default();
        let headers = headers(config, environment, &mut secrets)?;
        let McpConfig { url, connect_timeout, max_calls, max_result_bytes, .. } = config;
        let client = http_client(url, headers, *connect_timeout)?;
        let tokens = match &config.oauth {
            Some(oauth) => {
                let secret = oauth.client_secret(environment)?;
                let secret = secret.ok_or(SettingsError::NoClientSecret)?;
                secrets.add(&secret);
                // Without the headers, which are only for the server.
                let client = http_client(&oauth.token_url, HeaderMap::new(), *connect_timeout)?;
                let tokens = Arc::new(Tokens::new(client, oauth, &secret, url)?);
                secrets.add_token_source(Arc::clone(&tokens));
                Some(tokens)
            }
            None => None,
        };
        let http = Http { client, tokens };
        Ok(Self { secrets, sessions: Sessions::new(http, url, *max_result_bytes, *max_calls) })
    }

    /// Whether the server has announced a change of its tools since the last call of this method.
    pub(super) async fn take_changed(&self) -> bool {
        self.sessions.take_changed().await
    }

    /// Lists all tools. A failed attempt is repeated once, in a new session.
    pub(super) async fn list(&self, most: usize) -> Result<Vec<ListedTool>, String> {
        let mut is_first = true;
        loop {
            let session = self.sessions.open(&self.secrets).await?;
            session.subscribe().await;
            match self.listing(session.peer(), most).await {
                Ok(listing) if listing.tools.len() > most => {
                    return Err(format!("it lists more than {most} tools"));
                }
                Ok(listing) => return Ok(listing.tools),
                Err(error) => {
                    self.sessions.retire(&session).await;
                    if !is_first {
                        return Err(self.failure(&error));
                    }
                    is_first = false;
                }
            }
        }
    }

    /// Reads the pages of the list until its end, or until it has more than `most` tools.
    async fn listing(&self, peer: &Peer<RoleClient>, most: usize) -> Result<Listing, ServiceError> {
        let mut listing = Listing::default();
        let mut cursor = None;
        while listing.tools.len() <= most {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = peer.list_tools(Some(page)).await?;
            let tools = page.tools.into_iter().map(|tool| self.listed(tool));
            match listing.add(tools.collect(), page.next_cursor) {
                Next::Page(next) => cursor = Some(next),
                Next::End => break,
                Next::Endless => {
                    let tools = listing.tools.len();
                    tracing::warn!(tools, "the tool list of an MCP server does not end; using the tools read so far");
                    break;
                }
            }
        }
        Ok(listing)
    }

    /// Calls a tool. The call is repeated once if the server no longer has its session, so that it certainly did not
    /// run. Dropping the future cancels the call on the server.
    pub(super) async fn call(&self, tool: &str, arguments: &str) -> Result<Output, CallError> {
        let arguments = arguments::object(arguments).map_err(CallError::NotRun)?;
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = with_trace_context(request);
        let mut is_first = true;
        loop {
            let session = self.sessions.open(&self.secrets).await;
            let session = session.map_err(CallError::NotRun)?;
            let error = match session.peer().call_tool_once(request.clone()).await {
                Ok(response) => return self.read(response),
                Err(error) => error,
            };
            let ran = ExecutionStatus::of(&error);
            if is_first && ran == ExecutionStatus::NotRunInSession {
                self.prepare_retry(&session, &error).await;
                is_first = false;
                continue;
            }
            return Err(match (ran, &error) {
                (ExecutionStatus::MayHaveRun, ServiceError::McpError(error)) if !is_lost(error) => {
                    CallError::Refused(self.secrets.redacted_error(&error.message))
                }
                (ExecutionStatus::MayHaveRun, error) => {
                    self.sessions.retire(&session).await;
                    CallError::Unknown(self.failure(error))
                }
                (ExecutionStatus::NotRun | ExecutionStatus::NotRunInSession, error) => {
                    CallError::NotRun(self.failure(error))
                }
            });
        }
    }

    /// Prepares the repetition of a call. Some tools require arguments in headers too. The list of tools names them, so
    /// a session that has not listed the tools does not send them.
    async fn prepare_retry(&self, session: &Arc<Session>, error: &ServiceError) {
        let wants_headers = matches!(error, ServiceError::McpError(error) if error.code == ErrorCode::HEADER_MISMATCH);
        let knows = wants_headers && self.listing(session.peer(), MAX_TOOLS).await.is_ok();
        if !knows {
            self.sessions.retire(session).await;
        }
    }

    fn read(&self, response: CallToolResponse) -> Result<Output, CallError> {
        match response {
            CallToolResponse::Complete(result) => Ok(output(result, &self.secrets)),
            CallToolResponse::InputRequired(_) => {
                Err(CallError::Refused("it requested input, which contextd does not support".to_owned()))
            }
            CallToolResponse::Task(_) => {
                Err(CallError::Unknown("it continues as a task, which contextd does not support".to_owned()))
            }
            // The library may add variants.
            _ => Err(CallError::Unknown("the response has an unknown type".to_owned())),
        }
    }

    fn listed(&self, tool: Tool) -> ListedTool {
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        let description = tool.description.unwrap_or_default().into_owned();
        ListedTool {
            name: tool.name.into_owned(),
            description: self.secrets.redacted(description),
            input_schema: self.secrets.redacted(schema.to_string()),
        }
    }

    /// The text of an error, without addresses, which the text of a transport error may contain.
    fn failure(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => self.secrets.redacted_error(&error.message),
            ServiceError::TransportSend(error) => match error.error.downcast_ref::<transport::Error>() {
                Some(error) => transport::failure(error),
                None => "the connection failed".into(),
            },
            ServiceError::TransportClosed => "the connection was closed".into(),
            ServiceError::Timeout { .. } => "the request timed out".into(),
            ServiceError::Cancelled { .. } => "the request was cancelled".into(),
            ServiceError::UnexpectedResponse
            | ServiceError::SubscriptionLagged { .. }
            | ServiceError::InputRequiredRoundsExceeded { .. }
            | _ => "the response is invalid".into(),
        }
    }
}

/// The headers of every request. All values are secrets.
fn headers(config: &McpConfig, environment: &Environment, secrets: &mut Secrets) -> Result<HeaderMap, SettingsError> {
    let mut given: Vec<(HeaderName, SecretString)> = Vec::new();
    if let Some(token) = config.token(environment)? {
        let bearer = format!("Bearer {}", token.expose_secret());
        given.push((header::AUTHORIZATION, SecretString::from(bearer)));
    }
    for (name, value) in &config.headers {
        let known = name.parse::<HeaderName>();
        let known = known.map_err(|_| SettingsError::HeaderName(name.clone()))?;
        given.push((known, value.clone()));
    }
    let mut headers = HeaderMap::new();
    for (name, secret) in given {
        secrets.add(&secret);
        let value = HeaderValue::from_str(secret.expose_secret());
        let mut value = value.map_err(|_| SettingsError::Header(name.clone()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn http_client(url: &str, headers: HeaderMap, connect_timeout: Duration) -> Result<reqwest::Client, SettingsError> {
    let url: Url = url.parse().map_err(|error| SettingsError::Http(format!("{error}")))?;
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("contextd/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_keepalive(KEEPALIVE)
        .http2_keep_alive_interval(KEEPALIVE)
        // A redirect would send the key to another server.
        .redirect(redirect::Policy::none())
        .referer(false);
    if url.scheme() == "http" {
        // Plain HTTP: the system's certificate authorities are not needed and may be missing.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| SettingsError::Http(format!("{}", error.without_url())))
}

/// Whether the library reports that the session was lost: another call detected it while this one ran.
fn is_lost(error: &ErrorData) -> bool {
    error.code == ErrorCode::INTERNAL_ERROR && error.message == LOST_WITH_SESSION
}

/// Adds the trace context to a call, as far as the configuration allows. MCP carries it in the request, because the
/// headers belong to the session.
fn with_trace_context(mut request: CallToolRequestParams) -> CallToolRequestParams {
    for (name, value) in &Trace::current().provider_headers() {
        if let Ok(value) = value.to_str() {
            let meta = &mut request.meta_or_default().0.0;
            meta.insert(name.to_string(), value.into());
        }
    }
    request
}
