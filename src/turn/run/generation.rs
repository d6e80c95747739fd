//! How the model is to answer: what the turn and its session want together, and what of that the
//! model can be told.

use crate::{
    context::generation,
    model::{
        Generation, Payload, SessionConfig, ToolSet, command::TurnRequest,
        event::UnsupportedSetting, generation::Unsupported,
    },
    provider::registry::Resolved,
};

/// The settings for the call of that step, and what was left out of them.
pub(in crate::turn) fn fitting(
    model: &Resolved,
    config: &SessionConfig,
    request: &TurnRequest,
    tools: &ToolSet,
    step: u32,
) -> (Generation, Vec<Unsupported>) {
    let wanted = model
        .provider
        .fitted(&model.info, &request.generation.or(&config.generation));
    let told = tools.visible().filter(|_| model.info.supports_tools);
    generation::fit(
        &wanted,
        step,
        told,
        model.provider.cannot_take(&model.info, &wanted),
    )
}

/// The event that says what was left out.
pub(in crate::turn) fn left_out(model: &Resolved, unsupported: Unsupported) -> Payload {
    Payload::UnsupportedSetting(UnsupportedSetting {
        unsupported,
        provider: model.provider_name.clone(),
        model: model.reference.clone(),
    })
}
