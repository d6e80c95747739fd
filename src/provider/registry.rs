//! Which models there are: `PROVIDER/MODEL` to the provider that has it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use jiff::Timestamp;

use super::{ModelInfo, Provider};

/// All configured providers by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    providers: BTreeMap<String, Arc<dyn Provider>>,
}

/// A model reference that was found.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference, `PROVIDER/MODEL`; of an alias the one that it means.
    pub reference: String,
    /// Configured name of the provider.
    pub provider_name: String,
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The model.
    pub info: ModelInfo,
}

impl Registry {
    /// Adds a provider under its configured name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Finds the model that a reference names. `None` means no configured provider has it.
    pub fn resolve(&self, reference: &str) -> Option<Resolved> {
        let (provider_name, model) = reference.split_once('/')?;
        let provider = self.providers.get(provider_name)?;
        let info = provider.model(model)?;
        Some(Resolved {
            reference: format!("{provider_name}/{}", info.name),
            provider_name: provider_name.to_owned(),
            provider: Arc::clone(provider),
            info,
        })
    }

    /// Asks the services for their lists of models that are older than `interval`, all at once.
    pub async fn refresh(&self, now: Timestamp, interval: Duration) {
        let refreshed = self
            .providers
            .values()
            .map(|provider| provider.refresh(now, interval));
        join_all(refreshed).await;
    }

    /// The models that providers know by name, in order of their references.
    pub fn models(&self) -> Vec<Resolved> {
        let models = self.providers.iter().flat_map(|(name, provider)| {
            provider.models().into_iter().map(move |info| Resolved {
                reference: format!("{name}/{}", info.name),
                provider_name: name.clone(),
                provider: Arc::clone(provider),
                info,
            })
        });
        let mut models: Vec<_> = models.collect();
        models.sort_by(|a, b| a.reference.cmp(&b.reference));
        models
    }
}
