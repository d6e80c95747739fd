//! The window of a model under a policy.

use crate::{
    context::budget::Budget,
    model::config::ContextPolicy,
    provider::{ModelInfo, registry::ResolvedModel},
    turn::Error,
};

/// The window of a model under a policy. Returns `None` if it is unknown.
pub(in crate::turn) fn known_window(policy: &ContextPolicy, model: &ResolvedModel) -> Option<u32> {
    budget(policy, model).ok().filter(|budget| !budget.assumed).map(|budget| budget.window)
}

/// How the window of a model is divided under a policy.
///
/// # Errors
///
/// [`Error::ContextWindowUnknown`] if the window is unknown and the policy requires a known one.
pub(in crate::turn) fn budget(policy: &ContextPolicy, model: &ResolvedModel) -> Result<Budget, Error> {
    let ModelInfo { context_window, max_output, .. } = &model.info;
    let tokens = |limit: &Option<crate::provider::info::Limit>| limit.map(|limit| limit.tokens);
    Budget::of(policy, tokens(context_window), tokens(max_output))
        .map_err(|_| Error::ContextWindowUnknown(model.reference.clone()))
}
