//! Caches a service's most recent model list and refreshes it.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{Family, ModelList, fetch_list};
use crate::provider::{Error, RefreshFuture, error::Kind, http::Client};

/// Timeout for fetching a list, all requests together.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(20);

/// A service's most recent model list, if there is one. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CachedModelList(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: RwLock<Option<Arc<ModelListSnapshot>>>,
    /// Held during a fetch, so that at most one is in progress.
    last_fetch: Mutex<LastFetch>,
}

/// A model list and when it was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelListSnapshot {
    pub at: Timestamp,
    pub list: ModelList,
}

/// The most recent fetch.
#[derive(Debug, Default)]
struct LastFetch {
    at: Option<Instant>,
    failed: bool,
}

impl CachedModelList {
    /// The most recent list.
    pub fn last(&self) -> Option<Arc<ModelListSnapshot>> {
        let last = self.0.last.read().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// Replaces the most recent list.
    pub fn set(&self, at: Timestamp, list: ModelList) {
        let mut last = self.0.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::new(ModelListSnapshot { at, list }));
    }

    /// Fetches the service's list, unless it was fetched less than `interval` ago, or less than the
    /// minimum interval of its family. Concurrent callers wait for the fetch in progress. A failed
    /// fetch changes nothing; it is logged unless the previous one failed too.
    pub fn refresh(&self, client: &Client, family: Family, now: Timestamp, interval: Duration) -> RefreshFuture {
        let listing = self.clone();
        let client = client.clone();
        let family = match client.is_plain() {
            true => family.for_private_network(),
            false => family,
        };
        let interval = family.interval(interval);
        Box::pin(async move { listing.refreshed(&client, family, now, interval).await })
    }

    async fn refreshed(&self, client: &Client, family: Family, now: Timestamp, interval: Duration) {
        let mut asked = self.0.last_fetch.lock().await;
        if asked.at.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        asked.at = Some(Instant::now());
        let last = self.last();
        let asking = fetch_list(client, family, last.as_deref().map(|last| &last.list));
        let answer = timeout(REFRESH_TIMEOUT, asking).await;
        let answer = answer.unwrap_or_else(|_| {
            let message = format!("listing its models took longer than {} seconds", REFRESH_TIMEOUT.as_secs());
            Err(Error::new(Kind::Timeout, client.provider(), message))
        });
        let failed = answer.is_err();
        match answer {
            Ok(list) => {
                if last.is_none() || asked.failed {
                    tracing::info!(provider = client.provider(), models = list.models.len(), "read the model list");
                }
                self.set(now, list);
            }
            Err(error) if !asked.failed => {
                tracing::warn!(
                    provider = client.provider(),
                    %error,
                    "failed to refresh the model list; keeping the previous one"
                );
            }
            Err(_) => {}
        }
        asked.failed = failed;
    }
}
