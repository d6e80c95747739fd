//! The configured servers: calls and lists of their tools.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{CallError, Error, ListedTool, MAX_TOOLS, Output, SettingsError, Tenants, client::Client};
use crate::{
    config::{Environment, ServersConfig},
    fair::FairSemaphore,
    model::TenantId,
};

/// How long a list of tools is cached.
const LIST_TTL: Duration = Duration::from_mins(1);

/// How long an error is cached before the server is tried again.
const FAILED_TTL: Duration = Duration::from_secs(5);

/// Time limit for connecting and listing the tools together.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// The configured servers.
#[derive(Debug, Default)]
pub struct Servers {
    by_name: BTreeMap<String, Server>,
}

/// A configured server.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    pub(super) call_timeout: Duration,
    tenants: Tenants,
    slots: Arc<FairSemaphore>,
    /// The cached list or error. Locked during a request, so that concurrent callers wait for one request.
    listed: tokio::sync::Mutex<Option<CachedList>>,
}

#[derive(Debug, Clone)]
struct CachedList {
    at: Instant,
    list: Result<Arc<[ListedTool]>, String>,
}

impl Servers {
    /// Creates the clients of the configured servers. Secrets are read once, here. `is_shared` is true if there can be
    /// more than one tenant. The error is that of the server with this name.
    pub fn new(
        configs: &ServersConfig,
        is_shared: bool,
        environment: &Environment,
    ) -> Result<Self, (String, SettingsError)> {
        let mut by_name = BTreeMap::new();
        for (name, config) in configs {
            let client = Client::new(config, environment);
            let server = Server {
                call_timeout: config.call_timeout,
                slots: FairSemaphore::new(config.max_calls),
                listed: tokio::sync::Mutex::new(None),
                client: client.map_err(|error| (name.clone(), error))?,
                tenants: Tenants::of(config, is_shared),
            };
            if is_shared && config.tenants.is_empty() {
                tracing::warn!(server = name, "no tenant may use the MCP server: its tenants are not set");
            }
            by_name.insert(name.clone(), server);
        }
        Ok(Self { by_name })
    }

    /// Whether no server is configured.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Calls a tool for a tenant. The call counts toward the server's limit of concurrent calls. The caller must set a
    /// timeout; dropping the future cancels the call on the server.
    pub async fn call(
        &self,
        tenant: &TenantId,
        server: &str,
        tool: &str,
        arguments: &str,
    ) -> Result<Output, CallError> {
        let found = self.server(tenant, server);
        let found = found.map_err(|error| CallError::NotRun(error.to_string()))?;
        let _slot = found.slots.acquire(tenant).await;
        found.client.call(tool, arguments).await
    }

    /// A server that the tenant may use.
    pub(super) fn server(&self, tenant: &TenantId, name: &str) -> Result<&Server, Error> {
        self.by_name
            .get(name)
            .filter(|server| server.tenants.include(tenant))
            .ok_or_else(|| Error::UnknownServer(name.to_owned()))
    }

    /// The tools of a server, from a list not older than [`LIST_TTL`] and newer than the last change that the server
    /// announced.
    pub(super) async fn listed(&self, tenant: &TenantId, name: &str) -> Result<Arc<[ListedTool]>, Error> {
        let server = self.server(tenant, name)?;
        let mut listed = server.listed.lock().await;
        let changed = server.client.take_changed().await;
        let kept = listed.as_ref().filter(|kept| match &kept.list {
            Ok(_) => !changed && kept.at.elapsed() < LIST_TTL,
            Err(_) => kept.at.elapsed() < FAILED_TTL,
        });
        let list = match kept {
            Some(kept) => kept.list.clone(),
            None => {
                let list = match timeout(LIST_TIMEOUT, server.client.list(MAX_TOOLS)).await {
                    Ok(list) => list.map(Arc::from),
                    Err(_) => Err(format!("no response within {} s", LIST_TIMEOUT.as_secs())),
                };
                *listed = Some(CachedList { at: Instant::now(), list: list.clone() });
                list
            }
        };
        list.map_err(|reason| Error::ListFailed { server: name.to_owned(), reason })
    }
}
