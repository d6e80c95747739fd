//! Generation settings: those of the turn and its session combined, reduced to what the model
//! supports.

use std::collections::BTreeSet;

use crate::{
    context::fit_settings,
    model::{
        Generation, Payload, SessionConfig, ToolSet,
        command::TurnRequest,
        event::UnsupportedSetting,
        generation::{Setting, Unsupported},
    },
    provider::registry::ResolvedModel,
};

/// The settings for the call of that step, and what was left out of them.
pub(super) fn fitting(
    model: &ResolvedModel,
    config: &SessionConfig,
    request: &TurnRequest,
    tools: &ToolSet,
    step: u32,
) -> (Generation, Vec<Unsupported>) {
    let wanted = model.provider.nearest_supported(&model.info, &request.generation.or(&config.generation));
    let told = tools.visible().filter(|_| model.info.supports_tools);
    // A forced call applies to the first step only, and so do the settings that the model does not
    // support together with it.
    let in_step = fit_settings::in_step(&wanted, step);
    let mut refused = model.provider.unsupported_settings(&model.info, &in_step);
    let has_tools = tools.visible().next().is_some() || !tools.provider_tools.is_empty();
    if has_tools && model.info.supports_tools {
        let beside = model.provider.unsupported_settings_with_tools(&model.info, &in_step);
        let known: BTreeSet<Setting> = refused.iter().map(|it| it.setting).collect();
        refused.extend(beside.into_iter().filter(|it| !known.contains(&it.setting)));
    }
    refused.extend(tools_of_others(model, tools));
    fit_settings::fit(&wanted, step, told, refused)
}

/// The provider tools that are not sent, with the reason. Returns `None` if all are sent.
fn tools_of_others(model: &ResolvedModel, tools: &ToolSet) -> Option<Unsupported> {
    let others: BTreeSet<&str> = tools
        .provider_tools
        .iter()
        .map(|tool| tool.provider.as_str())
        .filter(|provider| *provider != model.provider_name || !model.info.supports_tools)
        .collect();
    let others = Vec::from_iter(others).join(", ");
    (!others.is_empty()).then(|| Unsupported {
        setting: Setting::ProviderTools,
        why: format!("Tools run by these providers are not sent to the model: {others}."),
    })
}

/// The event for a setting that was left out.
pub(super) fn left_out(model: &ResolvedModel, unsupported: Unsupported) -> Payload {
    Payload::UnsupportedSetting(UnsupportedSetting {
        unsupported,
        provider: model.provider_name.clone(),
        model: model.reference.clone(),
    })
}
