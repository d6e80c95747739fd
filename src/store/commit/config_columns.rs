//! The configuration of a new revision, as parameters of its commit.

use crate::{
    codec,
    model::TenantId,
    session::config_rows::NewConfig,
    store::{pipeline::Param, rows::signed, session_labels::Labels},
};

/// All columns of a new configuration.
#[derive(Default)]
pub(super) struct ConfigColumns<'a> {
    pub(super) changes: bool,
    toolset: String,
    config: Vec<u8>,
    tools: Vec<u8>,
    tools_tokens: i32,
    estimator: &'a str,
    /// Time to live of the session, in seconds.
    ttl: Option<f64>,
    /// Search keys of the session's labels.
    labels: Vec<Vec<u8>>,
    title: Option<String>,
}

impl<'a> ConfigColumns<'a> {
    pub(super) fn new(tenant: &TenantId, config: Option<NewConfig<'a>>) -> Self {
        let Some(new) = config else {
            return Self::default();
        };
        let found_by = Labels::of(tenant, new.config);
        let tools = codec::tools::encode(&new.config.tools);
        Self {
            changes: true,
            toolset: codec::tools::content_id(&tools),
            config: codec::config::encode(new.config),
            tools,
            tools_tokens: signed(new.tools_tokens),
            estimator: new.estimator,
            ttl: new.config.ttl.map(|ttl| ttl.as_secs_f64()),
            labels: found_by.labels,
            title: found_by.title,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.config.len() + self.tools.len()
    }

    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 9] {
        [
            ("configures", &self.changes),
            ("toolset", &self.toolset),
            ("config", &self.config),
            ("tools", &self.tools),
            ("tools_tokens", &self.tools_tokens),
            ("tools_estimator", &self.estimator),
            ("expires_after", &self.ttl),
            ("labels", &self.labels),
            ("title", &self.title),
        ]
    }
}
