//! The client of one MCP server over streamable HTTP: its list of tools, and calls of them.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use reqwest::{Url, redirect};
use rmcp::{
    RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, ErrorCode, ErrorData, PaginatedRequestParams,
        RequestParamsMeta as _, Tool,
    },
    service::Peer,
};
use secrecy::ExposeSecret as _;

use super::{
    CallError, Listed, MOST_TOOLS, Output, Settings, Unusable, arguments,
    listing::{Listing, Next},
    oauth::Tokens,
    output::output,
    secrets::Secrets,
    session::{Ran, Session, Sessions},
    transport::{self, Http},
};
use crate::telemetry::Trace;

/// Connections that are kept open without a use, and for how long.
const MAX_IDLE_CONNECTIONS: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The library's error for a call whose session was opened anew before its answer.
const LOST_WITH_SESSION: &str =
    "streamable HTTP session was re-initialized before the response arrived";

pub(super) struct Client {
    /// What no text of the server may hold that is passed on.
    secrets: Secrets,
    sessions: Sessions,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Result<Self, Unusable> {
        let mut headers = HeaderMap::new();
        let mut secrets = Secrets::default();
        for (name, secret) in &settings.headers {
            secrets.add(secret);
            let value = HeaderValue::from_str(secret.expose_secret());
            let mut value = value.map_err(|_| Unusable::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let Settings {
            url,
            headers: _,
            connect_timeout,
            call_timeout: _,
            max_calls,
            max_result_bytes,
            oauth,
            tenants: _,
        } = settings;
        let client = http_client(url, headers, *connect_timeout)?;
        let tokens = match oauth {
            Some(oauth) => {
                secrets.add(&oauth.client_secret);
                // Without the headers: they are for the server.
                let client = http_client(&oauth.token_url, HeaderMap::new(), *connect_timeout)?;
                let tokens = Arc::new(Tokens::new(client, oauth)?);
                secrets.follow(Arc::clone(&tokens));
                Some(tokens)
            }
            None => None,
        };
        let http = Http { client, tokens };
        Ok(Self {
            secrets,
            sessions: Sessions::new(http, url, *max_result_bytes, *max_calls),
        })
    }

    /// Whether the server announced another list of tools since the last look.
    pub(super) async fn take_changed(&self) -> bool {
        self.sessions.take_changed().await
    }

    /// All tools. A list that failed is asked for once more, in another session.
    pub(super) async fn list(&self, most: usize) -> Result<Vec<Listed>, String> {
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

    /// The list, page by page, to its end or to the first page with which it is too long.
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
                    tracing::warn!(tools, "the list of an MCP server's tools does not end");
                    break;
                }
            }
        }
        Ok(listing)
    }

    /// Calls a tool; once more where the first call certainly did nothing, for want of a session. A call that
    /// is dropped is cancelled at the server.
    pub(super) async fn call(&self, tool: &str, arguments: &str) -> Result<Output, CallError> {
        let arguments = arguments::object(arguments).map_err(CallError::NotRun)?;
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = in_trace(request);
        let mut is_first = true;
        loop {
            let session = self.sessions.open(&self.secrets).await;
            let session = session.map_err(CallError::NotRun)?;
            let error = match session.peer().call_tool_once(request.clone()).await {
                Ok(response) => return self.read(response),
                Err(error) => error,
            };
            let ran = Ran::of(&error);
            if is_first && ran == Ran::NotInThisSession {
                self.renew(&session, &error).await;
                is_first = false;
                continue;
            }
            return Err(match (ran, &error) {
                (Ran::Perhaps, ServiceError::McpError(error)) if !is_lost(error) => {
                    CallError::Refused(self.secrets.shown(&error.message))
                }
                (Ran::Perhaps, error) => {
                    self.sessions.retire(&session).await;
                    CallError::Unknown(self.failure(error))
                }
                (Ran::No | Ran::NotInThisSession, error) => CallError::NotRun(self.failure(error)),
            });
        }
    }

    /// Prepares a call's repetition. Some tools want arguments in headers too, as the list says: a session
    /// that has not listed them does not know.
    async fn renew(&self, session: &Arc<Session>, error: &ServiceError) {
        let wants_headers = matches!(error, ServiceError::McpError(error) if error.code == ErrorCode::HEADER_MISMATCH);
        let knows = wants_headers && self.listing(session.peer(), MOST_TOOLS).await.is_ok();
        if !knows {
            self.sessions.retire(session).await;
        }
    }

    fn read(&self, response: CallToolResponse) -> Result<Output, CallError> {
        match response {
            CallToolResponse::Complete(result) => Ok(output(result, &self.secrets)),
            CallToolResponse::InputRequired(_) => Err(CallError::Refused(
                "it asks for input, which contextd does not give".to_owned(),
            )),
            CallToolResponse::Task(_) => Err(CallError::Unknown(
                "it runs on as a task, whose result contextd does not fetch".to_owned(),
            )),
            // The library may add kinds.
            _ => Err(CallError::Unknown(
                "the answer is of an unknown kind".to_owned(),
            )),
        }
    }

    fn listed(&self, tool: Tool) -> Listed {
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        let description = tool.description.unwrap_or_default().into_owned();
        Listed {
            name: tool.name.into_owned(),
            description: self.secrets.scrubbed(description),
            input_schema: self.secrets.scrubbed(schema.to_string()),
        }
    }

    /// What went wrong, without addresses: the text of a transport's error may hold one.
    fn failure(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => self.secrets.shown(&error.message),
            ServiceError::TransportSend(error) => {
                match error.error.downcast_ref::<transport::Error>() {
                    Some(error) => transport::failure(error),
                    None => "the connection failed".into(),
                }
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
}

fn http_client(
    url: &str,
    headers: HeaderMap,
    connect_timeout: Duration,
) -> Result<reqwest::Client, Unusable> {
    let url: Url = url
        .parse()
        .map_err(|error| Unusable::Http(format!("{error}")))?;
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("contextd/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .connect_timeout(connect_timeout)
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
    builder
        .build()
        .map_err(|error| Unusable::Http(format!("{}", error.without_url())))
}

/// Whether the library says so itself: the call ran in a session that another call has found lost.
fn is_lost(error: &ErrorData) -> bool {
    error.code == ErrorCode::INTERNAL_ERROR && error.message == LOST_WITH_SESSION
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
