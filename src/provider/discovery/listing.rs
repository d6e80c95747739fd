//! The last list of models that a service gave, and how it is kept up to date.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{Family, ListedModel, ModelList, ask};
use crate::provider::{Error, Refresh, error::Kind, http::Client};

/// How long a service may take for its list, all requests together.
const PATIENCE: Duration = Duration::from_secs(20);

/// The last list of models that a service gave; without one, nothing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Listing(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    last: RwLock<Option<Arc<Listed>>>,
    /// Held while the service is asked, so that it is asked once at a time.
    asking: Mutex<Asked>,
}

/// A list, and when it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// When.
    pub at: Timestamp,
    /// What it says.
    pub list: ModelList,
}

/// The last question.
#[derive(Debug, Default)]
struct Asked {
    at: Option<Instant>,
    failed: bool,
}

impl Listed {
    /// What it says of the model of that name.
    pub fn get(&self, name: &str) -> Option<&ListedModel> {
        self.list.get(name)
    }
}

impl Listing {
    /// The last list.
    pub fn last(&self) -> Option<Arc<Listed>> {
        let last = self.0.last.read().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// Takes a list as the last one.
    pub fn set(&self, at: Timestamp, list: ModelList) {
        let mut last = self.0.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::new(Listed { at, list }));
    }

    /// Asks the service for its list, unless it was asked less than `interval` ago, or less than its
    /// family says. Whoever comes
    /// while it is being asked waits for that. What fails changes nothing, and is logged when it
    /// did not fail before.
    pub fn refresh(
        &self,
        client: &Client,
        family: Family,
        now: Timestamp,
        interval: Duration,
    ) -> Refresh {
        let listing = self.clone();
        let client = client.clone();
        let family = match client.is_plain() {
            true => family.nearby(),
            false => family,
        };
        let interval = family.interval(interval);
        Box::pin(async move { listing.refreshed(&client, family, now, interval).await })
    }

    async fn refreshed(&self, client: &Client, family: Family, now: Timestamp, interval: Duration) {
        let mut asked = self.0.asking.lock().await;
        if asked.at.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        asked.at = Some(Instant::now());
        let last = self.last();
        let asking = ask(client, family, last.as_deref().map(|last| &last.list));
        let answer = timeout(PATIENCE, asking).await;
        let answer = answer.unwrap_or_else(|_| Err(too_slow(client.provider())));
        let failed = answer.is_err();
        match answer {
            Ok(list) => {
                log_success(client.provider(), list.models.len(), &asked, last.is_none());
                self.set(now, list);
            }
            Err(error) if !asked.failed => {
                tracing::warn!(
                    provider = client.provider(),
                    %error,
                    "a list of models could not be read; what was known stays in force"
                );
            }
            Err(_) => {}
        }
        asked.failed = failed;
    }
}

fn too_slow(provider: &str) -> Error {
    let message = format!("its list took longer than {} seconds", PATIENCE.as_secs());
    Error::new(Kind::Timeout, provider, message)
}

fn log_success(provider: &str, models: usize, before: &Asked, first: bool) {
    if first || before.failed {
        tracing::info!(provider, models, "read a list of models");
    }
}
