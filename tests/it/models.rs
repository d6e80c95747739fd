//! Models in the API: their provider, their properties, and the source of each property.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    model::{DeclaredModel, Prompt},
    pb::{self, ModelSource, ReasoningEffort, model_service_client::ModelServiceClient},
    provider::{ModelInfo, Provider, ResponseStream, anthropic::Anthropic, model_facts::Catalog},
};
use tonic::{Code, transport::Channel};

use crate::harness::{Options, Replica, errors::refusal, upstream::Upstream, validate::Api};

/// A provider that lists its models and calls none.
#[derive(Debug)]
struct Silent(Catalog);

impl Provider for Silent {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        self.0.model(name)
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.0.models()
    }

    fn call(&self, _: Arc<Prompt>) -> ResponseStream {
        panic!("nobody calls it")
    }
}

fn declared() -> BTreeMap<String, DeclaredModel> {
    let best = DeclaredModel {
        display_name: Some("The best".to_owned()),
        aliases: vec!["best".to_owned(), "largest".to_owned()],
        context_window: Some(100_000),
        json_schema: Some(false),
        ..DeclaredModel::default()
    };
    let local = DeclaredModel { tools: Some(false), max_output: Some(512), ..DeclaredModel::default() };
    [("gpt-4o".to_owned(), best), ("local".to_owned(), local)].into()
}

/// A server with `scripted`, with OpenAI's models, and with a self-hosted server.
async fn service() -> (Replica, ModelServiceClient<Channel>) {
    let provider = |host: &str, declared| Arc::new(Silent(Catalog::new(host, declared))) as Arc<dyn Provider>;
    let providers = vec![
        ("openai".to_owned(), provider("api.openai.com", declared())),
        ("own".to_owned(), provider("localhost", [("llama".to_owned(), DeclaredModel::default())].into())),
    ];
    let (_, replica) = Replica::alone(Options { providers, ..Options::default() }).await;
    let models = ModelServiceClient::new(replica.channel().await);
    (replica, models)
}

async fn get(models: &mut ModelServiceClient<Channel>, reference: &str) -> pb::Model {
    let request = pb::GetModelRequest { model: reference.to_owned() };
    models.get_model(request).await.unwrap().into_inner().model.unwrap()
}

fn limit(tokens: i32, source: ModelSource) -> Option<pb::ModelLimit> {
    Some(pb::ModelLimit { tokens, source: source.into() })
}

/// Reads all pages of the models of a provider.
async fn list(models: &mut ModelServiceClient<Channel>, provider: &str, page_size: i32) -> Vec<pb::Model> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListModelsRequest { page_size, page_token, provider: provider.to_owned() };
        let page = models.list_models(request).await.unwrap().into_inner();
        let count = page.models.len();
        let most = if page_size == 0 { 50 } else { page_size as usize };
        all.extend(page.models);
        if page.next_page_token.is_empty() {
            return all;
        }
        assert_eq!(count, most, "only the last page is short");
        page_token = page.next_page_token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn get_model_reports_facts_with_their_source() {
    let (_replica, mut models) = service().await;
    let efforts = |efforts: &[ReasoningEffort]| efforts.iter().map(|effort| (*effort).into()).collect::<Vec<i32>>();
    let shipped = get(&mut models, "openai/gpt-5").await;
    let expected = pb::Model {
        model: "openai/gpt-5".to_owned(),
        provider: "openai".to_owned(),
        provider_kind: "openai".to_owned(),
        display_name: "gpt-5".to_owned(),
        context_window: limit(400_000, ModelSource::Shipped),
        max_output: limit(128_000, ModelSource::Shipped),
        input_media_types: vec!["image/*".to_owned(), "application/pdf".to_owned()],
        supports_tools: true,
        supports_parallel_tool_calls: true,
        supports_json_schema: true,
        reasoning_efforts: efforts(&[
            ReasoningEffort::Minimal,
            ReasoningEffort::Low,
            ReasoningEffort::Medium,
            ReasoningEffort::High,
        ]),
        estimator: shipped.estimator.clone(),
        calibration_ratio: 1.0,
        source: ModelSource::Shipped.into(),
        ..pb::Model::default()
    };
    assert_eq!(shipped, expected);
    assert!(!shipped.estimator.is_empty());
    let declared = get(&mut models, "openai/gpt-4o").await;
    assert_eq!(declared.context_window, limit(100_000, ModelSource::Configured));
    assert_eq!(declared.max_output, limit(16_384, ModelSource::Shipped));
    assert_eq!((declared.display_name.as_str(), declared.supports_json_schema), ("The best", false));
    assert_eq!((declared.source(), declared.supports_tools), (ModelSource::Configured, true));
    let scripted = get(&mut models, "scripted/demo").await;
    assert_eq!((scripted.provider_kind.as_str(), scripted.supports_tools), ("scripted", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn get_model_lists_the_rules_by_which_requests_are_written() {
    let upstream = Upstream::start().await;
    let claude = Anthropic::new("claude", upstream.settings_for(Api::Anthropic), BTreeMap::new());
    let provider = |dialect: &str| {
        let provider: Arc<dyn Provider> = Arc::new(upstream.provider(dialect, dialect));
        (dialect.to_owned(), provider)
    };
    let providers =
        vec![provider("deepseek"), provider("openai"), ("claude".to_owned(), Arc::new(claude.unwrap()) as _)];
    let (_, replica) = Replica::alone(Options { providers, ..Options::default() }).await;
    let mut models = ModelServiceClient::new(replica.channel().await);
    let efforts = |efforts: &[ReasoningEffort]| {
        let efforts = efforts.iter();
        efforts.map(|it| (*it).into()).collect::<Vec<i32>>()
    };
    let deepseek = get(&mut models, "deepseek/deepseek-reasoner").await;
    let levels = efforts(&[ReasoningEffort::None, ReasoningEffort::High, ReasoningEffort::Max]);
    let expected = pb::ModelRules {
        dialect: "deepseek".to_owned(),
        reasoning_kept: pb::ReasoningKept::WhileCalls.into(),
        reasoning_author: pb::ReasoningAuthor::AnyModel.into(),
        reasoning_field: "reasoning_content".to_owned(),
        reasoning_bound_to_prefix: false,
        missing_reasoning: pb::MissingReasoning::Placeholder.into(),
        reasoning_placeholder: "[Not kept.]".to_owned(),
        call_id_format: pb::CallIdFormat::Short.into(),
        keeps_own_call_ids: false,
        forced_calls_with_effort: pb::ForcedCalls::NotForced.into(),
        forced_calls_with_budget: pb::ForcedCalls::NotForced.into(),
        reasoning_efforts: levels.clone(),
        reasoning_efforts_with_tools: levels,
        kind_for_reasoning_with_tools: String::new(),
        max_stop_sequences: None,
    };
    assert_eq!(deepseek.rules, Some(expected));
    let gpt = get(&mut models, "openai/gpt-5.4").await.rules.unwrap();
    assert_eq!(
        (gpt.reasoning_efforts_with_tools, gpt.kind_for_reasoning_with_tools.as_str(), gpt.max_stop_sequences),
        (efforts(&[ReasoningEffort::None]), "openai-responses", Some(0))
    );
    let claude = get(&mut models, "claude/claude-opus-4-7").await;
    let claude = claude.rules.unwrap();
    assert_eq!(
        (claude.reasoning_author(), claude.forced_calls_with_effort(), claude.max_stop_sequences),
        (pb::ReasoningAuthor::SameModelSigned, pb::ForcedCalls::WithoutReasoning, None)
    );
    let scripted = get(&mut models, "scripted/demo").await;
    assert_eq!(scripted.rules, None, "no request is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_resolves_to_its_model() {
    let (_replica, mut models) = service().await;
    let model = get(&mut models, "openai/gpt-4o").await;
    assert_eq!(model.aliases, ["openai/best", "openai/largest"]);
    for alias in &model.aliases {
        assert_eq!(get(&mut models, alias).await, model, "{alias}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_has_no_facts() {
    let (_replica, mut models) = service().await;
    let unknown = get(&mut models, "own/some/new-model").await;
    assert_eq!((unknown.model.as_str(), unknown.source()), ("own/some/new-model", ModelSource::Assumed));
    assert_eq!((unknown.context_window, unknown.max_output, unknown.input_media_types.len()), (None, None, 0));
    assert!(unknown.supports_tools && !unknown.supports_json_schema && unknown.reasoning_efforts.is_empty());
    for reference in ["scripted/none", "nobody/gpt-5", "gpt-5", "openai/"] {
        let status = models.get_model(pb::GetModelRequest { model: reference.to_owned() }).await.unwrap_err();
        let refusal = refusal(&status);
        assert_eq!((refusal.code, refusal.reason.as_str()), (Code::NotFound, "MODEL_NOT_FOUND"), "{reference}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_by_reference_page_by_page() {
    let (_replica, mut models) = service().await;
    let all = list(&mut models, "", 1_000).await;
    let references: Vec<&str> = all.iter().map(|model| model.model.as_str()).collect();
    assert!(references.is_sorted() && references.len() > 100, "{references:?}");
    for known in ["openai/gpt-4o", "openai/local", "own/llama", "scripted/demo"] {
        assert!(references.contains(&known), "{known}");
    }
    assert!(!references.contains(&"openai/best"), "an alias is no model");
    for page_size in [1, 7, 0, 5_000] {
        assert_eq!(list(&mut models, "", page_size).await, all, "{page_size}");
    }
    for model in &all {
        assert_eq!(get(&mut models, &model.model).await, *model, "the list and the model are one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_can_be_filtered_by_provider() {
    let (_replica, mut models) = service().await;
    let of = async |models: &mut ModelServiceClient<Channel>, provider: &str| {
        let listed = list(models, provider, 20).await;
        assert!(listed.iter().all(|model| model.provider == provider), "{provider}");
        listed.into_iter().map(|model| model.model).collect::<Vec<_>>()
    };
    assert!(of(&mut models, "openai").await.len() > 50);
    assert_eq!(of(&mut models, "own").await, ["own/llama"]);
    assert_eq!(of(&mut models, "scripted").await, ["scripted/demo"]);
    assert_eq!(of(&mut models, "nobody").await, Vec::<String>::new());
    let page = pb::ListModelsRequest { page_size: 1, provider: "openai".to_owned(), ..Default::default() };
    let page_token = models.list_models(page).await.unwrap().into_inner().next_page_token;
    let other = pb::ListModelsRequest { page_token, ..pb::ListModelsRequest::default() };
    let refusal = refusal(&models.list_models(other).await.unwrap_err());
    assert_eq!(refusal.reason, "PAGE_TOKEN_INVALID", "the token of another filter");
}
