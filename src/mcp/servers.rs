//! The servers of the configuration: calls of their tools, and what they list.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{
    CallError, Error, Listed, MOST_TOOLS, Output, Settings, Tenants, Unusable, client::Client,
};
use crate::{fair::FairGate, model::TenantId};

/// How long a list of tools is used before the server is asked again.
const LIST_TTL: Duration = Duration::from_mins(1);

/// How long a server that could not be asked is not asked again.
const FAILED_TTL: Duration = Duration::from_secs(5);

/// How long a connection and the list of tools may take together.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// The servers that the configuration names.
#[derive(Debug, Default)]
pub struct Servers {
    by_name: BTreeMap<String, Server>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    pub(super) call_timeout: Duration,
    tenants: Tenants,
    slots: Arc<FairGate>,
    /// What it listed last, or why it did not. One caller asks, the others wait for the answer.
    listed: tokio::sync::Mutex<Option<Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    at: Instant,
    list: Result<Arc<[Listed]>, String>,
}

impl Servers {
    /// Servers by name.
    pub fn new(
        settings: impl IntoIterator<Item = (String, Settings)>,
    ) -> Result<Self, (String, Unusable)> {
        let mut by_name = BTreeMap::new();
        for (name, settings) in settings {
            let server = Server {
                call_timeout: settings.call_timeout,
                slots: FairGate::new(settings.max_calls),
                listed: tokio::sync::Mutex::new(None),
                client: Client::new(&settings).map_err(|error| (name.clone(), error))?,
                tenants: settings.tenants,
            };
            by_name.insert(name, server);
        }
        Ok(Self { by_name })
    }

    /// Whether no server is configured.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Calls a tool for a tenant, which takes a place among the calls of its server. The caller bounds the time;
    /// a call that is dropped is cancelled at the server.
    pub async fn call(
        &self,
        tenant: &TenantId,
        server: &str,
        tool: &str,
        arguments: &str,
    ) -> Result<Output, CallError> {
        let found = self.server(tenant, server);
        let found = found.map_err(|error| CallError::NotRun(error.to_string()))?;
        let _slot = found.slots.enter(tenant).await;
        found.client.call(tool, arguments).await
    }

    /// A server, if the tenant may use it.
    pub(super) fn server(&self, tenant: &TenantId, name: &str) -> Result<&Server, Error> {
        self.by_name
            .get(name)
            .filter(|server| server.tenants.include(tenant))
            .ok_or_else(|| Error::Unknown(name.to_owned()))
    }

    /// What a server lists, at most as old as [`LIST_TTL`], and newer than the last change that the
    /// server announced.
    pub(super) async fn listed(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<[Listed]>, Error> {
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
                let list = match timeout(LIST_TIMEOUT, server.client.list(MOST_TOOLS)).await {
                    Ok(list) => list.map(Arc::from),
                    Err(_) => Err(format!("no answer within {} s", LIST_TIMEOUT.as_secs())),
                };
                *listed = Some(Remembered {
                    at: Instant::now(),
                    list: list.clone(),
                });
                list
            }
        };
        list.map_err(|reason| Error::Failed {
            server: name.to_owned(),
            reason,
        })
    }
}
