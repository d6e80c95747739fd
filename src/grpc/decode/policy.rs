//! Checks policy overrides.

use super::{Findings, Path};
use crate::{
    model::config::is_model_reference,
    pb::{
        self, FieldReason,
        limits::{compaction_policy, policy},
    },
};

/// Checks what the limits of the fields do not express. Does not check that fallback models exist.
pub(super) fn check(at: Path<'_>, policy: &pb::Policy, found: &mut Findings) {
    check_once(at.field("fallback_models"), &policy.fallback_models, found);
    if let Some(compaction) = &policy.compaction {
        let at = at.field("compaction");
        check_summary_model(at.field("summary_model"), &compaction.summary_model, found);
    }
    let tools = policy.tools.as_ref();
    if tools.is_some_and(|tools| tools.cancel_wait.is_some()) {
        found.not_implemented(at.field("tools").field("cancel_wait"));
    }
}

fn check_once(at: Path<'_>, models: &[String], found: &mut Findings) {
    // More are rejected, and not compared.
    for (i, model) in models.iter().take(policy::FALLBACK_MODELS).enumerate() {
        if models[..i].contains(model) {
            found.invalid(at.index(i), FieldReason::Conflict, "must be listed only once");
        }
    }
}

/// Reports fallback models that are the session's own model.
pub(super) fn check_other_models(at: Path<'_>, own: &str, overrides: &pb::Policy, found: &mut Findings) {
    let at = at.field("fallback_models");
    let models = overrides.fallback_models.iter();
    for (i, model) in models.take(policy::FALLBACK_MODELS).enumerate() {
        if !own.is_empty() && model == own {
            let expected = "must differ from the session's model";
            found.invalid(at.index(i), FieldReason::Invalid, expected);
        }
    }
}

/// Checks the model of summaries. Empty means the session's model.
pub(super) fn check_summary_model(at: Path<'_>, model: &str, found: &mut Findings) {
    if !model.is_empty() && compaction_policy::SUMMARY_MODEL.fits(model) && !is_model_reference(model) {
        found.invalid(at, FieldReason::Invalid, "must look like PROVIDER/MODEL");
    }
}
