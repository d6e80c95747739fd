//! [`Prompts`]: what prompts are built from. These are the models, MCP servers and policies of the configuration, and
//! sessions as read.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    fair::FairSemaphore,
    mcp,
    model::{Limits, SessionConfig, SessionKey, command::TurnRequest, config::Policy},
    provider::{Registry, registry::ResolvedModel},
    quota::Quotas,
    store::{Store, session::Session},
    turn::{
        calibrations::CalibrationMemory,
        error::Error,
        settings::{DEFAULT_POLICY, Rules},
    },
};

/// Least time between two refreshes of one server's models that turns trigger.
const MIN_MODEL_REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time that a turn waits for such a refresh.
const MODEL_REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// What prompts are built from, and the memory that they may take.
#[derive(Debug)]
pub struct Prompts {
    pub(in crate::turn) store: Store,
    pub(in crate::turn) models: Registry,
    pub(in crate::turn) mcp: mcp::Servers,
    /// Settings from the configuration.
    pub rules: Rules,
    pub(in crate::turn) clock: Arc<dyn Clock>,
    pub(in crate::turn) quotas: Arc<Quotas>,
    pub(in crate::turn) calibration_memory: Arc<CalibrationMemory>,
    /// Bytes that calls which read whole sessions may hold.
    pub(in crate::turn) prompt_memory: Arc<FairSemaphore>,
    /// Token counts for hosts that may run at once.
    pub(in crate::turn) counts: Arc<FairSemaphore>,
}

impl Prompts {
    /// The wall-clock time, for display only.
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Reads a session.
    ///
    /// # Errors
    ///
    /// [`Error::SessionNotFound`] if the tenant has no such session.
    pub async fn session(&self, key: &SessionKey) -> Result<Session, Error> {
        self.store.session(key).await?.ok_or_else(|| Error::SessionNotFound(key.session.clone()))
    }

    /// Resolves a model reference.
    ///
    /// # Errors
    ///
    /// [`Error::ModelNotFound`] if no configured provider has the model.
    pub fn model(&self, reference: &str) -> Result<ResolvedModel, Error> {
        self.models.resolve(reference).ok_or_else(|| Error::ModelNotFound(self.models.missing(reference)))
    }

    /// Like [`Prompts::model`], for a model that is about to be called. If the context window of a
    /// model on a local server is unknown, the server's models are refreshed first: the model may
    /// not have been loaded when they were listed.
    pub(in crate::turn) async fn model_to_call(
        &self,
        reference: &str,
        config: &SessionConfig,
    ) -> Result<ResolvedModel, Error> {
        let model = self.model(reference)?;
        if model.info.context_window.is_some()
            || !model.provider.is_local()
            || !self.rules.models.discover
            || self.policy(config)?.context.context_window.is_some()
        {
            return Ok(model);
        }
        let asking = model.provider.refresh(self.now(), MIN_MODEL_REFRESH_INTERVAL);
        // If the refresh takes longer, a later step gets the window from the worker's refresh.
        let _ = tokio::time::timeout(MODEL_REFRESH_TIMEOUT, asking).await;
        self.model(reference)
    }

    /// Refuses references to unknown models.
    pub(in crate::turn) fn check_models(&self, references: &[String]) -> Result<(), Error> {
        references.iter().try_for_each(|reference| self.model(reference).map(drop))
    }

    /// Refreshes the model lists of all providers.
    pub async fn refresh_models(&self) -> Result<(), Error> {
        if self.rules.models.discover {
            // Less than the interval: two rounds are not exactly one interval apart.
            let age = self.rules.models.refresh_interval / 2;
            self.models.refresh(self.now(), age).await;
        }
        Ok(())
    }

    /// The models that providers list by name, ordered by reference.
    pub fn models(&self) -> Vec<ResolvedModel> {
        self.models.models()
    }

    /// The policy of a session with the session's overrides applied.
    ///
    /// # Errors
    ///
    /// [`Error::PolicyNotFound`] if the configuration no longer has the policy.
    pub fn policy(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let named =
            self.rules.policies.get(&config.policy).ok_or_else(|| Error::PolicyNotFound(config.policy.clone()))?;
        Ok(named.with(&config.overrides))
    }

    /// Like [`Prompts::policy`], but falls back to the server's default policy if the session's is
    /// no longer configured.
    pub(in crate::turn) fn policy_or_default(&self, config: &SessionConfig) -> Result<Policy, Error> {
        let default = || SessionConfig { policy: DEFAULT_POLICY.to_owned(), ..config.clone() };
        self.policy(config).or_else(|_| self.policy(&default()))
    }

    /// The limits in force: those of the turn override those of the session, which override the
    /// server's.
    pub fn limits(&self, config: &SessionConfig, request: &TurnRequest) -> Limits {
        request.limits.over(config.limits.over(self.rules.turn.limits()))
    }
}
