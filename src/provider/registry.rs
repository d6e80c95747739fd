//! Which models there are: `PROVIDER/MODEL` to the provider that has it.

use std::{collections::BTreeMap, sync::Arc};

use super::Provider;

/// A model that sessions can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name within the provider.
    pub name: String,
    /// Name for people.
    pub display_name: String,
    /// The whole window in tokens.
    pub context_window: u32,
    /// Most tokens of one answer.
    pub max_output: u32,
    /// Whether it can call tools; when not, it is never told of any.
    pub supports_tools: bool,
}

/// All configured providers by name.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    providers: BTreeMap<String, Arc<dyn Provider>>,
}

/// A model reference that was found.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference, `PROVIDER/MODEL`.
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

    /// Finds the model that a reference names; none: no configured provider has it.
    pub fn resolve(&self, reference: &str) -> Option<Resolved> {
        let (provider_name, model) = reference.split_once('/')?;
        let provider = self.providers.get(provider_name)?;
        let info = provider.model(model)?;
        Some(Resolved {
            reference: reference.to_owned(),
            provider_name: provider_name.to_owned(),
            provider: Arc::clone(provider),
            info,
        })
    }
}
