//! The session with one server. It is opened on first use, in the revision of the protocol that the server speaks, and
//! reopened after it has ended. Since revision 2026-07-28 there is no session to open; contextd only queries the
//! server's capabilities.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ClientCacheConfig, ClientHandler, ClientLifecycleMode, RoleClient, ServiceError,
    model::{ClientCapabilities, ClientConfig, ErrorCode, Implementation, ProtocolVersion, SubscriptionFilter},
    serve_client_with_lifecycle,
    service::{ClientInitializeError, NotificationContext, Peer, RunningService, Subscription, SubscriptionEnd},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    secrets::Secrets,
    transport::{self, Http},
};

/// Time limit for opening a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The share of that time for the first revision that is tried. A server that does not know the revision may leave the
/// request without a response.
const FIRST_TIMEOUT: Duration = Duration::from_secs(7);

/// Time limit of a subscription to changes of the list of tools. Without a subscription the list is refreshed when it
/// expires.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum bytes of an error response that are read.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// Number of concurrent requests in addition to calls: they list tools.
const MAX_LIST_REQUESTS: usize = 2;

/// A family of protocol revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Revision {
    /// 2026-07-28 and later: each request is self-contained.
    Stateless,
    /// 2025-11-25 and earlier: `initialize` opens a session.
    Handshake,
}

/// Opens sessions with one server, one at a time.
pub(super) struct Sessions {
    http: Http,
    config: StreamableHttpClientTransportConfig,
    changed: Arc<AtomicBool>,
    state: Mutex<CurrentSession>,
}

struct CurrentSession {
    open: Option<Arc<Session>>,
    /// The revision that the server last accepted, or the one to try first.
    revision: Revision,
}

/// An open session. It ends when its last user drops it.
pub(super) struct Session {
    running: RunningService<RoleClient, Listener>,
    changes: Mutex<Option<Subscription>>,
}

impl Sessions {
    pub(super) fn new(http: Http, url: &str, max_result_bytes: usize, max_calls: usize) -> Self {
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .max_json_response_size(max_result_bytes)
            .max_sse_event_size(max_result_bytes)
            .max_error_response_size(MAX_ERROR_BYTES)
            .max_concurrent_requests(max_calls.saturating_add(MAX_LIST_REQUESTS));
        Self {
            http,
            config,
            changed: Arc::default(),
            state: Mutex::new(CurrentSession { open: None, revision: Revision::Stateless }),
        }
    }

    /// The open session, or a new one. The error says why no session could be opened.
    pub(super) async fn open(&self, secrets: &Secrets) -> Result<Arc<Session>, String> {
        let mut state = self.state.lock().await;
        if let Some(open) = state.open.as_ref().filter(|open| open.is_open()) {
            return Ok(Arc::clone(open));
        }
        let until = Instant::now() + OPEN_TIMEOUT;
        let first = state.revision;
        let opened = match timeout(FIRST_TIMEOUT, self.connect(first)).await {
            Ok(Err(error)) if error.is_authorization_required() => {
                return Err(transport::unauthorized(error.auth_challenge()));
            }
            Ok(Err(_)) | Err(_) => {
                let second = first.other();
                let left = until.saturating_duration_since(Instant::now());
                match timeout(left, self.connect(second)).await {
                    Ok(Ok(session)) => Ok(Ok((session, second))),
                    Ok(Err(error)) => Ok(Err(error)),
                    Err(elapsed) => Err(elapsed),
                }
            }
            Ok(Ok(session)) => Ok(Ok((session, first))),
        };
        match opened {
            Ok(Ok((session, revision))) => {
                let session = Arc::new(session);
                *state = CurrentSession { open: Some(Arc::clone(&session)), revision };
                Ok(session)
            }
            // The text of the library's error may contain the address and the server's response.
            Ok(Err(error)) => {
                let error = secrets.redacted_error(&error.to_string());
                tracing::debug!(error, "an MCP server did not open a session");
                Err("it did not open a session".to_owned())
            }
            Err(_) => Err(format!("no session within {} s", OPEN_TIMEOUT.as_secs())),
        }
    }

    async fn connect(&self, revision: Revision) -> Result<Session, ClientInitializeError> {
        let transport = StreamableHttpClientTransport::with_client(self.http.clone(), self.config.clone());
        let listener = Listener { changed: Arc::clone(&self.changed) };
        let running = serve_client_with_lifecycle(listener, transport, revision.mode()).await?;
        // Lists are cached in `servers.rs`.
        let no_cache = ClientCacheConfig::disabled();
        running.peer().set_response_cache_config(no_cache).await;
        Ok(Session { running, changes: Mutex::new(None) })
    }

    /// Discards the session, so that the next use opens another. Calls that use it continue.
    pub(super) async fn retire(&self, session: &Arc<Session>) {
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, session)) {
            state.open = None;
        }
    }

    /// Whether the server has announced a change of its tools since the last call of this method.
    pub(super) async fn take_changed(&self) -> bool {
        let open = self.state.lock().await.open.clone();
        if let Some(open) = open
            && open.has_changed().await
        {
            self.changed.store(true, Ordering::Relaxed);
        }
        self.changed.swap(false, Ordering::Relaxed)
    }
}

impl Revision {
    fn other(self) -> Self {
        match self {
            Self::Stateless => Self::Handshake,
            Self::Handshake => Self::Stateless,
        }
    }

    fn mode(self) -> ClientLifecycleMode {
        match self {
            Self::Stateless => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
            Self::Handshake => ClientLifecycleMode::Initialize,
        }
    }
}

impl Session {
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    fn is_open(&self) -> bool {
        !self.running.is_closed() && !self.peer().is_transport_closed()
    }

    /// Subscribes to changes of the list of tools, if the server announces them to subscribers only.
    pub(super) async fn subscribe(&self) {
        let Some(server) = self.peer().peer_info() else {
            return;
        };
        let tools = server.capabilities.tools.as_ref();
        let announces = tools.and_then(|tools| tools.list_changed) == Some(true);
        let mut changes = self.changes.lock().await;
        if server.protocol_version.has_initialize() || !announces || changes.is_some() {
            return;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match timeout(SUBSCRIBE_TIMEOUT, self.peer().listen(filter)).await {
            Ok(Ok(subscription)) => *changes = Some(subscription),
            Ok(Err(_)) | Err(_) => tracing::debug!("an MCP server does not support subscriptions"),
        }
    }

    /// Whether an announcement has arrived. A subscription that ended is renewed with the next list.
    async fn has_changed(&self) -> bool {
        let mut changes = self.changes.lock().await;
        let mut changed = false;
        while let Some(subscription) = changes.as_mut() {
            // Do not wait for announcements that have not arrived.
            match timeout(Duration::ZERO, subscription.next()).await {
                Ok(Ok(Some(_))) => changed = true,
                Ok(Ok(None) | Err(_)) => {
                    changed |= matches!(subscription.end(), Some(SubscriptionEnd::Lagged { .. }));
                    *changes = None;
                }
                Err(_) => break,
            }
        }
        changed
    }
}

/// Receives the announcements of the server in a session.
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

/// Whether a failed request may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecutionStatus {
    /// It may have run.
    MayHaveRun,
    /// It did not run.
    NotRun,
    /// It did not run because of the session; it may succeed in another one.
    NotRunInSession,
}

impl ExecutionStatus {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library may add kinds, and of most it is not known")]
    pub(super) fn of(error: &ServiceError) -> Self {
        match error {
            ServiceError::TransportSend(error) => {
                let error = error.error.downcast_ref::<transport::Error>();
                error.map_or(Self::MayHaveRun, Self::of_transport_error)
            }
            ServiceError::McpError(error)
                if matches!(error.code, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION | ErrorCode::HEADER_MISMATCH) =>
            {
                Self::NotRunInSession
            }
            _ => Self::MayHaveRun,
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library may add kinds, and of most it is not known")]
    fn of_transport_error(error: &transport::Error) -> Self {
        use transport::Error;
        match error {
            Error::SessionExpired | Error::ReinitializationFailed(_) => Self::NotRunInSession,
            Error::Client(error) if error.is_connect() => Self::NotRunInSession,
            Error::AuthRequired(_) | Error::InsufficientScope(_) => Self::NotRun,
            Error::HttpStatus(answer) if answer.status == 429 => Self::NotRun,
            _ => Self::MayHaveRun,
        }
    }
}
