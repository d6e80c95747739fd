//! ModelService: lists and describes the models of the configured providers.

use std::sync::Arc;

use tonic::Status;

use super::{decode::ListModels, handler::service, pager::Pager};
use crate::{
    codec::field::{Field as _, choices, messages},
    model::{Principal, TenantId, service_rules::CallIdRule},
    pb::{self, model_service_server::ModelService},
    provider::{
        ModelInfo, Rules,
        info::{Limit, Source},
        registry::ResolvedModel,
        rules::{ForcedCalls, MissingReasoning, ReasoningAuthor, ReasoningKept, ReasoningRule},
    },
    turn::{Engine, context::estimators::template},
};

/// ModelService on top of an engine.
#[derive(Debug, Clone)]
pub struct Models {
    engine: Arc<Engine>,
}

service! {
    ModelService for Models {
        list_models: ListModelsRequest,
        get_model: GetModelRequest,
    }
}

impl Models {
    /// Creates the service.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    async fn list_models(
        &self,
        caller: Principal,
        ListModels { provider, page }: ListModels,
    ) -> Result<pb::ListModelsResponse, Status> {
        let mut page: Pager<String, _> = Pager::new("ListModels", provider.clone().unwrap_or_default(), page)?;
        let mut models = self.engine.prompts.models();
        models.retain(|model| provider.as_ref().is_none_or(|provider| model.provider_name == *provider));
        models.retain(|model| page.position.as_ref().is_none_or(|after| model.reference > *after));
        let models = page.take(models, false);
        for model in self.encode_models(&caller.tenant, models).await? {
            if !page.push(model.model.clone(), model) {
                break;
            }
        }
        let (models, next_page_token) = page.finish();
        Ok(pb::ListModelsResponse { models, next_page_token })
    }

    async fn get_model(&self, caller: Principal, reference: String) -> Result<pb::GetModelResponse, Status> {
        let model = self.engine.prompts.model(&reference)?;
        let model = self.encode_models(&caller.tenant, vec![model]).await?.pop();
        Ok(pb::GetModelResponse { model })
    }

    /// Encodes models, with the calibration from the tenant's calls.
    async fn encode_models(&self, tenant: &TenantId, models: Vec<ResolvedModel>) -> Result<Vec<pb::Model>, Status> {
        let references: Vec<&str> = models.iter().map(|model| model.reference.as_str()).collect();
        let learnt = self.engine.prompts.calibrations(tenant, &references).await?;
        let ratio = |model: &ResolvedModel| learnt.get(&model.reference).map_or(1.0, |learnt| learnt.ratio);
        Ok(models
            .into_iter()
            .map(|model| (ratio(&model), model))
            .map(|(ratio, model)| model_to_pb(model, ratio))
            .collect())
    }
}

fn model_to_pb(model: ResolvedModel, calibration_ratio: f64) -> pb::Model {
    let estimator = template(&model).estimator();
    let rules = model.provider.rules(&model.info);
    let ResolvedModel { reference, provider_name, provider, info } = model;
    let ModelInfo {
        name: _,
        display_name,
        aliases,
        context_window,
        max_output,
        input_media,
        supports_tools,
        supports_parallel_tools,
        supports_json_schema,
        supports_temperature: _,
        reasoning_efforts,
        thinking: _,
        cache_prices: _,
        source,
        discovered,
    } = info;
    pb::Model {
        model: reference,
        provider_kind: provider.kind().to_owned(),
        display_name,
        aliases: aliases.iter().map(|alias| format!("{provider_name}/{alias}")).collect(),
        provider: provider_name,
        context_window: context_window.to_field(),
        max_output: max_output.to_field(),
        input_media_types: input_media,
        supports_tools,
        supports_parallel_tool_calls: supports_parallel_tools.unwrap_or(false),
        supports_json_schema: supports_json_schema.unwrap_or(false),
        reasoning_efforts: reasoning_efforts.unwrap_or_default().to_field(),
        estimator,
        supports_exact_count: provider.can_count_tokens(),
        calibration_ratio,
        source: source.to_field(),
        discover_time: discovered.to_field(),
        rules: rules.map(rules_to_pb),
    }
}

fn rules_to_pb(rules: Rules) -> pb::ModelRules {
    let Rules {
        dialect,
        reasoning: ReasoningRule { kept, of },
        reasoning_field,
        reasoning_bound_to_prefix,
        missing_reasoning,
        call_ids,
        keeps_own_call_ids,
        forced_with_effort,
        forced_with_budget,
        efforts,
        efforts_with_tools,
        kind_for_reasoning_with_tools,
        max_stop_sequences,
    } = rules;
    let (missing, placeholder) = match missing_reasoning {
        MissingReasoning::Nothing => (pb::MissingReasoning::Nothing, ""),
        MissingReasoning::Placeholder(text) => (pb::MissingReasoning::Placeholder, text),
        MissingReasoning::NoBudget => (pb::MissingReasoning::NoBudget, ""),
    };
    let author = Some(of).filter(|_| kept != ReasoningKept::Never);
    let format = match call_ids {
        Some(CallIdRule::Short) => pb::CallIdFormat::Short,
        Some(CallIdRule::Nine) => pb::CallIdFormat::Nine,
        None => pb::CallIdFormat::OwnOnly,
    };
    let most = max_stop_sequences.map(|most| i32::try_from(most).unwrap_or(i32::MAX));
    pb::ModelRules {
        dialect: dialect.unwrap_or_default().to_owned(),
        reasoning_kept: kept.to_field(),
        reasoning_author: author.to_field(),
        reasoning_field: reasoning_field.to_owned(),
        reasoning_bound_to_prefix,
        missing_reasoning: missing.into(),
        reasoning_placeholder: placeholder.to_owned(),
        call_id_format: format.into(),
        keeps_own_call_ids,
        forced_calls_with_effort: forced_with_effort.to_field(),
        forced_calls_with_budget: forced_with_budget.to_field(),
        reasoning_efforts: efforts.to_field(),
        reasoning_efforts_with_tools: efforts_with_tools.to_field(),
        kind_for_reasoning_with_tools: kind_for_reasoning_with_tools.unwrap_or_default().to_owned(),
        max_stop_sequences: most,
    }
}

choices! {
    ForcedCalls = ForcedCalls { Both, WithoutReasoning, NotForced, Never }
    ReasoningKept = ReasoningKept { Never, InLoop = ToolLoop, WhileCalls, Always }
    ReasoningAuthor = ReasoningAuthor { AnyModel, SameModel, SameModelSigned }
    Source = ModelSource { Assumed, Shipped, Discovered, Configured }
}

messages! {
    Limit = ModelLimit { tokens, source, }
}
