//! The configuration of a new revision, as parameters of its commit.

use crate::{
    model::TenantId,
    session::config_rows::NewConfig,
    store::{pipeline::Param, session::ConfigParams},
};

/// All columns of it.
#[derive(Default)]
pub(super) struct ConfigColumns<'a> {
    pub(super) changes: bool,
    params: ConfigParams,
    estimator: &'a str,
}

impl<'a> ConfigColumns<'a> {
    pub(super) fn new(tenant: &TenantId, config: Option<NewConfig<'a>>) -> Self {
        let Some(new) = config else {
            return Self::default();
        };
        Self {
            changes: true,
            params: ConfigParams::new(tenant, &new),
            estimator: new.estimator,
        }
    }

    pub(super) fn values(&self) -> [(&'static str, Param<'_>); 9] {
        let ConfigParams {
            toolset_id,
            config,
            tools,
            tokens,
            ttl,
            labels,
            title,
        } = &self.params;
        [
            ("configures", &self.changes),
            ("toolset", toolset_id),
            ("config", config),
            ("tools", tools),
            ("tools_tokens", tokens),
            ("tools_estimator", &self.estimator),
            ("expires_after", ttl),
            ("labels", labels),
            ("title", title),
        ]
    }
}
