//! Settings of the turn engine.

use std::collections::BTreeMap;

use crate::{
    config::{BlobsConfig, Config, ModelsConfig, RetentionConfig, TurnConfig},
    model::config::Policy,
};

/// The sections of the configuration that the turn engine reads, and what follows from others.
#[derive(Debug, Clone)]
pub struct Rules {
    pub turn: TurnConfig,
    pub models: ModelsConfig,
    pub blobs: BlobsConfig,
    pub retention: RetentionConfig,
    /// Policies by name. Contains [`DEFAULT_POLICY`].
    pub policies: BTreeMap<String, Policy>,
    /// `server.max_large_requests`: here, the most token counts for hosts that run at once.
    pub max_large_requests: usize,
    /// Whether callers can belong to several tenants.
    pub is_shared: bool,
    /// Whether other replicas may use the database. If not, no text is shared and no wake-up is sent
    /// or received.
    pub has_other_replicas: bool,
}

/// Name of the policy of sessions that name none.
pub const DEFAULT_POLICY: &str = "default";

impl Rules {
    /// The settings of a replica whose database other replicas may use.
    pub fn new(config: &Config) -> Self {
        let policies = config.policies.iter();
        Self {
            turn: config.turn.clone(),
            models: config.models.clone(),
            blobs: config.blobs,
            retention: config.retention,
            policies: policies.map(|(name, policy)| (name.clone(), policy.resolved())).collect(),
            max_large_requests: config.server.max_large_requests,
            is_shared: config.auth.is_shared(),
            has_other_replicas: true,
        }
    }
}
