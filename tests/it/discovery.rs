//! Discovery of models: the model lists of services are used and shown, and unreadable entries have no effect.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contextd::{
    clock::ManualClock,
    model::config::ContextPolicy,
    pb::{self, ModelSource, event::Payload, model_service_client::ModelServiceClient},
    provider::gemini::Gemini,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Host, Options, as_worker,
    errors::refusal,
    log::Logged,
    requests::turn,
    upstream::{Reply, Upstream, calling, declaring, said},
    validate::Api,
};

const NOON: &str = "2026-11-23T12:00:00Z";

/// A discovery interval that never skips a request.
const AT_ONCE: Duration = Duration::from_nanos(2);

fn noon() -> Timestamp {
    NOON.parse().unwrap()
}

/// A replica that requests model lists only when the test triggers it.
fn asking(options: Options) -> Options {
    Options {
        context: ContextPolicy::default(),
        clock: Arc::new(ManualClock::new(noon())),
        discover: Some(AT_ONCE),
        workers: false,
        ..options
    }
}

/// LM Studio's list with one model, loaded with this window.
fn loaded(window: u32) -> Reply {
    let instance = json!({"id": "qwen", "config": {"context_length": window}});
    let model = json!({
        "type": "llm", "key": "qwen", "display_name": "Qwen", "max_context_length": 131_072,
        "loaded_instances": [instance], "capabilities": {"vision": true},
    });
    Reply::json(200, &json!({"models": [model]}))
}

async fn get(host: &Host, model: &str) -> pb::Model {
    let mut models = ModelServiceClient::new(host.replica.channel().await);
    let request = pb::GetModelRequest { model: model.to_owned() };
    let response = models.get_model(request).await.unwrap();
    response.into_inner().model.unwrap()
}

async fn listed(host: &Host) -> Vec<String> {
    let mut models = ModelServiceClient::new(host.replica.channel().await);
    let request = pb::ListModelsRequest { provider: "main".to_owned(), ..pb::ListModelsRequest::default() };
    let response = models.list_models(request).await.unwrap().into_inner();
    response.models.into_iter().map(|model| model.model).collect()
}

async fn refresh(host: &Host) {
    as_worker(host.replica.engine.prompts.refresh_models()).await.unwrap();
}

fn limit(tokens: i32, source: ModelSource) -> Option<pb::ModelLimit> {
    Some(pb::ModelLimit { tokens, source: source.into() })
}

/// The window at the first step.
fn window(events: &[pb::Event]) -> i32 {
    let window = |event: &pb::Event| match &event.payload {
        Some(Payload::StepStarted(started)) => Some(started.context_window),
        _ => None,
    };
    events.iter().find_map(window).unwrap()
}

/// Rows S4 and L2
#[tokio::test(flavor = "multi_thread")]
async fn a_discovered_window_is_used_for_a_turn_and_shown_with_its_source_and_time() {
    let upstream = Upstream::start().await;
    upstream.list("/api/v1/models", loaded(16_384));
    upstream.answer(Reply::events(said(&["Hello."])));
    let host = Host::with(asking(upstream.options("lmstudio"))).await;
    refresh(&host).await;
    let model = get(&host, "main/qwen").await;
    assert_eq!((model.source(), model.display_name.as_str()), (ModelSource::Discovered, "Qwen"));
    assert_eq!(model.context_window, limit(16_384, ModelSource::Discovered));
    assert_eq!(model.input_media_types, ["image/*"]);
    let at = model.discover_time.unwrap();
    assert_eq!((at.seconds, at.nanos), (noon().as_second(), 0));
    assert_eq!(listed(&host).await, ["main/qwen"]);
    let events = host.run(turn("s", "main/qwen", "Hello")).await;
    assert_eq!(window(&events), 16_384);
}

/// Row S4
#[tokio::test(flavor = "multi_thread")]
async fn the_window_of_a_model_that_was_loaded_anew_is_noticed() {
    let upstream = Upstream::start().await;
    let host = Host::with(asking(upstream.options("lmstudio"))).await;
    for (loaded_with, expected) in [(16_384, 16_384), (8_192, 8_192), (32_768, 32_768)] {
        upstream.list("/api/v1/models", loaded(loaded_with));
        refresh(&host).await;
        let model = get(&host, "main/qwen").await;
        assert_eq!(model.context_window, limit(expected, ModelSource::Discovered));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_fails_is_unreadable_or_too_long_changes_nothing() {
    let upstream = Upstream::start().await;
    upstream.list("/v1/models", Reply::json(200, &json!({"data": [{"id": "m", "max_model_len": 16_384}]})));
    let clock = Arc::new(ManualClock::new(noon()));
    let options = Options { clock: clock.clone(), ..asking(upstream.options("vllm")) };
    let host = Host::with(options).await;
    refresh(&host).await;
    let before = get(&host, "main/m").await;
    assert_eq!(before.context_window, limit(16_384, ModelSource::Discovered));
    let many: Vec<Value> = (0..=5_000).map(|at| json!({"id": format!("m{at}")})).collect();
    let huge = format!(r#"{{"data":[{{"id":"m","about":"{}"}}]}}"#, "x".repeat(4 << 20));
    let plain = |body: &str| Reply::new(200, "application/json").then(body.to_owned());
    let bad = [
        Reply::error(500, "server_error", "no"),
        Reply::error(404, "not_found", "no"),
        plain("<html>"),
        plain(""),
        plain(r#"{"data": [{"id": "m", "max_model_len": 1}"#),
        plain(r#"{"error": "Unexpected endpoint or method."}"#),
        plain(r#"{"data": [{"name": "m"}]}"#),
        plain(r#"{"data": "#).cut(),
        Reply::json(200, &json!({"data": many})),
        plain(&huge),
    ];
    for reply in bad {
        clock.advance(jiff::SignedDuration::from_secs(60));
        let case = format!("{reply:?}");
        let asked = upstream.listed("/v1/models");
        upstream.list("/v1/models", reply);
        refresh(&host).await;
        let case = &case[..case.len().min(200)];
        assert_eq!(upstream.listed("/v1/models"), asked + 1, "{case}");
        assert_eq!(get(&host, "main/m").await, before, "{case}");
        assert_eq!(listed(&host).await, ["main/m"], "{case}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_list_that_keeps_failing_is_logged_once_until_it_is_read_again() {
    let logged = Logged::default();
    let _logging = logged.begin();
    let upstream = Upstream::start().await;
    let host = Host::with(asking(upstream.options("lmstudio"))).await;
    let counts = || {
        ["failed to refresh the model list; keeping the previous one", "read the model list"]
            .map(|message| logged.lines(message).len())
    };
    let good = || loaded(16_384);
    let bad = || Reply::error(500, "server_error", "no");
    let rounds =
        [(good(), [0, 1]), (good(), [0, 1]), (bad(), [1, 1]), (bad(), [1, 1]), (good(), [1, 2]), (bad(), [2, 2])];
    for (reply, expected) in rounds {
        upstream.list("/api/v1/models", reply);
        refresh(&host).await;
        assert_eq!(counts(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_configured_wins_over_the_list_fact_by_fact() {
    let upstream = Upstream::start().await;
    upstream.list(
        "/v1/models",
        Reply::json(
            200,
            &json!({"data": [
                {"id": "told", "max_model_len": 16_384, "max_output_tokens": 2_048},
                {"id": "found", "max_model_len": 32_768},
            ]}),
        ),
    );
    let provider = declaring("main", upstream.settings(), "vllm", &[("told", 1_000)]);
    let options = Options::default().provider("main", Arc::new(provider));
    let host = Host::with(asking(options)).await;
    refresh(&host).await;
    let told = get(&host, "main/told").await;
    assert_eq!((told.source(), told.context_window), (ModelSource::Configured, limit(1_000, ModelSource::Configured)));
    assert_eq!(told.max_output, limit(2_048, ModelSource::Discovered));
    assert!(told.discover_time.is_some());
    let found = get(&host, "main/found").await;
    assert_eq!(found.context_window, limit(32_768, ModelSource::Discovered));
    assert_eq!(listed(&host).await, ["main/found", "main/told"]);
}

/// Rows S4 and L2
#[tokio::test(flavor = "multi_thread")]
async fn the_window_of_a_local_model_is_asked_for_when_a_turn_needs_it() {
    let upstream = Upstream::start().await;
    upstream.list("/props", Reply::json(200, &json!({"default_generation_settings": {"n_ctx": 4_096}})));
    upstream.answer(Reply::events(said(&["Hello."])));
    let host = Host::with(asking(upstream.options("llamacpp"))).await;
    assert_eq!(upstream.listed("/props"), 0);
    let events = host.run(turn("s", "main/any-name", "Hello")).await;
    assert_eq!(window(&events), 4_096);
    assert_eq!(upstream.listed("/props"), 1, "the window is known from then on");
}

/// Rows S4 and L2
#[tokio::test(flavor = "multi_thread")]
async fn the_window_of_a_local_server_is_never_that_which_its_model_was_trained_with() {
    let upstream = Upstream::start().await;
    let list = |path: &str, answer: Value| upstream.list(path, Reply::json(200, &answer));
    list(
        "/api/v1/models",
        json!({"models": [{"type": "llm", "key": "m", "max_context_length": 131_072, "loaded_instances": []}]}),
    );
    list("/api/ps", json!({"models": []}));
    list(
        "/api/show",
        json!({"model_info": {"llama.context_length": 131_072}, "capabilities": ["completion", "tools"]}),
    );
    list("/v1/models", json!({"data": [{"id": "m", "meta": {"n_ctx_train": 131_072}}]}));
    let mut options = Options::default();
    let dialects = ["lmstudio", "ollama", "llamacpp", "vllm"];
    for dialect in dialects {
        options = options.provider(dialect, Arc::new(upstream.provider(dialect, dialect)));
    }
    let host = Host::with(asking(options)).await;
    refresh(&host).await;
    for dialect in dialects {
        let reference = format!("{dialect}/m");
        let model = get(&host, &reference).await;
        assert_eq!((model.source(), model.context_window), (ModelSource::Discovered, None), "{dialect}");
        let policy = pb::Policy { unknown_window: pb::UnknownWindow::Refuse.into(), ..pb::Policy::default() };
        let session = pb::Session {
            session_id: dialect.to_owned(),
            model: reference,
            policy_overrides: Some(policy),
            ..pb::Session::default()
        };
        let create = pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() };
        host.sessions().create_session(create).await.unwrap();
        let request =
            pb::GetContextStatsRequest { session_id: dialect.to_owned(), ..pb::GetContextStatsRequest::default() };
        let status = host.contexts().get_context_stats(request).await.unwrap_err();
        let refusal = refusal(&status);
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (Code::FailedPrecondition, "CONTEXT_WINDOW_UNKNOWN"),
            "{dialect}"
        );
    }
    assert_eq!(upstream.listed("/api/show"), 1);
    refresh(&host).await;
    assert_eq!(upstream.listed("/api/show"), 1, "what a model can do is asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_asked_once_by_all_who_come_at_the_same_time() {
    let upstream = Upstream::start().await;
    upstream.list("/api/v1/models", loaded(16_384));
    let options = Options { discover: Some(Duration::from_hours(1)), ..asking(upstream.options("lmstudio")) };
    let host = Host::with(options).await;
    tokio::join!(refresh(&host), refresh(&host), refresh(&host));
    assert_eq!(upstream.listed("/api/v1/models"), 1);
    let model = get(&host, "main/qwen").await;
    assert_eq!(model.source(), ModelSource::Discovered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_and_turns_run_while_a_list_does_not_come() {
    let upstream = Upstream::start().await;
    let silent = Reply::new(200, "application/json").then("[").stall();
    upstream.list("/v1/models", silent);
    upstream.answer(Reply::events(said(&["Hello."])));
    let options = Options { discover: Some(Duration::from_hours(1)), ..upstream.options("vllm") };
    let host = Host::with(options).await;
    let events = host.run(turn("s", "main/m", "Hello")).await;
    assert!(matches!(events.last().and_then(|event| event.payload.as_ref()), Some(Payload::TurnCompleted(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_service_is_asked_where_discovery_is_off() {
    let upstream = Upstream::start().await;
    upstream.list("/api/v1/models", loaded(16_384));
    let options = Options { discover: None, ..asking(upstream.options("lmstudio")) };
    let host = Host::with(options).await;
    refresh(&host).await;
    assert_eq!(upstream.listed("/api/v1/models"), 0);
    assert_eq!(get(&host, "main/qwen").await.source(), ModelSource::Assumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_name_that_is_another_path_is_no_model() {
    let upstream = Upstream::start().await;
    let model = |name: &str| json!({"name": name, "supportedGenerationMethods": ["generateContent"]});
    let names = ["models/gemini-a", "models/g/../admin/keys?x=", "models/..", "models/a b"];
    let models: Vec<Value> = names.into_iter().map(model).collect();
    let list = Reply::json(200, &json!({ "models": models }));
    upstream.list("/v1beta/models?pageSize=1000", list);
    let settings = upstream.settings_for(Api::Gemini);
    let provider = Gemini::new("main", settings, BTreeMap::new()).unwrap();
    let host = Host::with(asking(calling(provider))).await;
    refresh(&host).await;
    assert_eq!(listed(&host).await, ["main/gemini-a"]);
}
