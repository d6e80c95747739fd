//! The tokenizer that is used for a model.

use std::sync::Once;

use crate::{
    context::{estimator::Estimator, template::Template},
    provider::registry::ResolvedModel,
};

/// The template of a model: by its service if that is known, otherwise by the provider's configured
/// name.
pub fn template(model: &ResolvedModel) -> &'static Template {
    static TOLD: Once = Once::new();
    let service = model.provider.service().unwrap_or(&model.provider_name);
    let template = Template::of(service, &model.info.name);
    if !template.counts_exactly() {
        let told = || {
            tracing::info!(
                model = %model.reference, estimator = %template.estimator(),
                "the model's vocabulary is unknown or not in this build; tokens are counted with a related vocabulary and a margin"
            );
        };
        TOLD.call_once(told);
    }
    template
}

/// The estimator for content that is stored for a model.
pub(in crate::turn) fn estimator(model: &ResolvedModel) -> Estimator {
    Estimator::of(template(model))
}
