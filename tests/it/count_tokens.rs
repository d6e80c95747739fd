//! CountTokens: the predicted size of a prompt.

use std::{collections::BTreeMap, sync::Arc};

use contextd::{
    model::{Calibration, Prompt, TenantId},
    pb::{self, ContextCategory, TokenBasis, context_service_client::ContextServiceClient},
    provider::{ModelInfo, Provider, ResponseStream, model_facts::Catalog},
};
use serde_json::json;
use tonic::transport::Channel;

use crate::harness::{
    Options, Replica, TestDatabase, as_worker,
    errors::refusal,
    events::{TEST_TIMEOUT, all},
    host::until as eventually,
    process::Place,
    requests::{tools, turn},
    transcripts::{calls, results, says},
    upstream::{Reply, Upstream},
};

/// A provider with OpenAI's models and any other name. It is never called.
#[derive(Debug)]
struct Silent(Catalog);

impl Provider for Silent {
    fn kind(&self) -> &'static str {
        "openai"
    }

    fn model(&self, name: &str) -> Option<ModelInfo> {
        let known = self.0.model(name);
        Some(known.unwrap_or_else(|| ModelInfo::unknown(name)))
    }

    fn models(&self) -> Vec<ModelInfo> {
        self.0.models()
    }

    fn call(&self, _: Arc<Prompt>) -> ResponseStream {
        panic!("nobody calls it")
    }
}

async fn service() -> (TestDatabase, Replica, ContextServiceClient<Channel>) {
    let openai = Arc::new(Silent(Catalog::new("api.openai.com", BTreeMap::new()))) as Arc<dyn Provider>;
    let (database, replica) = Replica::alone(Options::default().provider("openai", openai)).await;
    let contexts = ContextServiceClient::new(replica.channel().await);
    (database, replica, contexts)
}

async fn count(
    contexts: &mut ContextServiceClient<Channel>,
    request: pb::CountTokensRequest,
) -> (pb::TokenCount, pb::CountTokensResponse) {
    let counts = contexts.count_tokens(request).await.unwrap().into_inner();
    let total = counts.total.clone().unwrap();
    let parts: i32 = counts.categories.iter().map(|category| category.tokens).sum();
    assert_eq!(parts, total.tokens, "{counts:?}");
    (total, counts)
}

fn hello() -> pb::CountTokensRequest {
    let messages = vec![says(pb::Role::User, "Hello, world!")];
    pb::CountTokensRequest { model: "openai/gpt-4o".to_owned(), messages, ..Default::default() }
}

/// Rows L1, S5, S6
#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_counted_with_its_own_vocabulary_and_overhead() {
    let (_database, _replica, mut contexts) = service().await;
    let (total, counts) = count(&mut contexts, hello()).await;
    // Four of the text, four around the message, three that open the response.
    assert_eq!((total.tokens, total.basis()), (11, TokenBasis::Tokenizer));
    assert_eq!(total.estimator, "o200k+gpt-4-chat");
    assert_eq!(counts.message_tokens[0].tokens, 8);
    let unknown = pb::CountTokensRequest { model: "scripted/demo".to_owned(), ..hello() };
    let (total, _) = count(&mut contexts, unknown).await;
    assert_eq!((total.basis(), total.estimator.as_str()), (TokenBasis::Heuristic, "o200k+unknown"));
    assert!(total.margin * 10 >= total.tokens, "{total:?}");
    let long = pb::CountTokensRequest {
        model: "scripted/demo".to_owned(),
        messages: vec![says(pb::Role::User, &"Hello, world! ".repeat(500))],
        ..Default::default()
    };
    let (total, _) = count(&mut contexts, long).await;
    assert!(total.tokens > 1_000, "{total:?}");
    assert!(total.margin * 10 >= total.tokens, "{total:?}");
}

/// Row L1
#[tokio::test(flavor = "multi_thread")]
async fn each_family_is_counted_with_its_vocabulary_or_with_a_margin_without_it() {
    use TokenBasis::{Heuristic, Tokenizer};
    let (_database, _replica, mut contexts) = service().await;
    let families = [
        ("gpt-3.5-turbo", Tokenizer, "cl100k+gpt-3.5"),
        ("mixtral-8x7b", Tokenizer, "mistral-v1+mixtral"),
        ("mistral-large", Tokenizer, "tekken+mistral"),
        // Their vocabularies are not part of the build.
        ("llama-3.1-8b", Heuristic, "o200k+llama-3"),
        ("llama-2-7b", Heuristic, "o200k+llama-2"),
        ("of-nobody", Heuristic, "o200k+unknown"),
    ];
    for (model, basis, estimator) in families {
        let request = pb::CountTokensRequest {
            model: format!("openai/{model}"),
            messages: vec![says(pb::Role::User, &"Hello, world! ".repeat(100))],
            ..Default::default()
        };
        let (total, _) = count(&mut contexts, request).await;
        assert_eq!((total.basis(), total.estimator.as_str()), (basis, estimator));
        assert!((300..600).contains(&total.tokens), "{model}: {total:?}");
        let is_wide = total.margin * 10 >= total.tokens;
        assert!(is_wide || basis == Tokenizer, "{model}: {total:?}");
    }
}

/// Rows S5, A11
#[tokio::test(flavor = "multi_thread")]
async fn count_tokens_counts_everything_in_its_category() {
    let (_database, _replica, mut contexts) = service().await;
    let messages = vec![says(pb::Role::User, "Look twice."), calls(&["c1", "c2"]), results(&["c1", "c2"])];
    let request = pb::CountTokensRequest {
        system_prompt: "Be brief.".to_owned(),
        tools: tools(&["look", "feel"]),
        messages,
        ..hello()
    };
    let (total, counts) = count(&mut contexts, request.clone()).await;
    let found: Vec<_> = counts.categories.iter().map(|it| (it.category(), it.count, it.tokens > 0)).collect();
    let expected = [
        (ContextCategory::SystemPrompt, 1, true),
        (ContextCategory::Tools, 2, true),
        (ContextCategory::User, 1, true),
        (ContextCategory::ToolCalls, 2, true),
        (ContextCategory::ToolResults, 2, true),
    ];
    assert_eq!(found, expected);
    assert_eq!(counts.message_tokens.len(), 3);
    let without = pb::CountTokensRequest { tools: None, ..request };
    assert!(count(&mut contexts, without).await.0.tokens < total.tokens);
}

/// Row A11
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_added_to_a_sessions_next_prompt_and_nothing_is_stored() {
    let (database, replica, mut contexts) = service().await;
    let request = turn("s", "scripted/demo", "Hello");
    all(&mut replica.turns().await.execute_turn(request).await.unwrap().into_inner()).await;
    let client = database.client().await;
    let before = database.contents(&client).await;
    let of = |messages| pb::CountTokensRequest { session_id: "s".to_owned(), messages, ..Default::default() };
    let (alone, _) = count(&mut contexts, of(vec![])).await;
    let (longer, counts) = count(&mut contexts, of(vec![says(pb::Role::User, "And then?")])).await;
    // The measured response now counts as a message: 4 more tokens.
    assert_eq!(longer.tokens - alone.tokens, 4 + counts.message_tokens[0].tokens);
    assert_eq!(counts.message_tokens.len(), 1, "only what was given");
    let (switched, _) = count(&mut contexts, pb::CountTokensRequest { model: hello().model, ..of(vec![]) }).await;
    assert_eq!(switched.estimator, "o200k+gpt-4-chat");
    assert_eq!(database.contents(&client).await, before);
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn calibration_corrects_count_tokens() {
    let (database, _replica, mut contexts) = service().await;
    let long = pb::CountTokensRequest { messages: vec![says(pb::Role::User, &"hello ".repeat(500))], ..hello() };
    let (plain, _) = count(&mut contexts, long.clone()).await;
    let learnt = "insert into tenant_calibration (tenant_id, model, ratio, calls)
                  values ('other', 'openai/gpt-4o', 0.7, 9), ('default', 'openai/gpt-4o', 1.5, 9)";
    database.client().await.batch_execute(learnt).await.unwrap();
    let (corrected, _) = count(&mut contexts, long).await;
    assert_eq!(corrected.basis(), TokenBasis::Calibrated);
    assert_eq!(corrected.tokens, (f64::from(plain.tokens) * 1.5).round() as i32);
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn calls_update_the_calibration() {
    let says = r#"{"steps": [{"say": [{"text": "Fine."}, {"finish": {"usage": {"input": 1000, "output": 2}}}]}]}"#;
    let (database, replica) =
        Replica::alone(Options { workers: false, ..Options::default() }.script("large", says)).await;
    let request = turn("s", "scripted/large", &"hello ".repeat(594));
    all(&mut replica.turns().await.execute_turn(request).await.unwrap().into_inner()).await;
    // The calibration is updated in the background.
    let client = database.client().await;
    let stored = "select model, ratio, calls from tenant_calibration where tenant_id = 'default'";
    eventually("what the call taught is written", || async {
        as_worker(replica.engine.prompts.save_calibrations()).await.unwrap();
        !client.query(stored, &[]).await.unwrap().is_empty()
    })
    .await;
    replica.drain(TEST_TIMEOUT).await;
    let row = client.query_one(stored, &[]).await.unwrap();
    let (model, ratio, calls): (&str, f64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!((model, calls), ("scripted/large", 1));
    assert!((1.6..1.7).contains(&ratio), "{ratio}");
    let tenant = TenantId::new("default");
    let again = [((tenant.clone(), "scripted/large".to_owned()), Calibration { ratio: 9.0, calls: 4 })].into();
    as_worker(replica.engine.store().learn(&again)).await.unwrap();
    let learnt = replica.engine.store().calibrations(&tenant, &["scripted/large", "other"]).await.unwrap();
    // Five calls, four of them at the bound.
    assert_eq!(learnt.len(), 1);
    assert_eq!(learnt["scripted/large"].calls, 5);
    assert!((learnt["scripted/large"].ratio - (ratio + (2.0 - ratio) * 0.8)).abs() < 1e-9);
}

/// Row A12
#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_calls_of_a_model_are_counted_between_two_writes() {
    const TURNS: usize = 80;
    const AT_MOST: i64 = 64 + 4; // calls that are being counted at the time of the write are extra
    let says = r#"{"steps": [{"say": [{"text": "Fine."}, {"finish": {"usage": {"input": 1000, "output": 2}}}]}]}"#;
    let options = Options { workers: false, ..Options::default() };
    let (database, replica) = Replica::alone(options.script("large", says)).await;
    let run = async |session: &str| {
        let request = turn(session, "scripted/large", &"hello ".repeat(200));
        let mut turns = replica.turns().await;
        all(&mut turns.execute_turn(request).await.unwrap().into_inner()).await;
    };
    let client = database.client().await;
    let learnt = async || {
        as_worker(replica.engine.prompts.save_calibrations()).await.unwrap();
        let stored = "select coalesce(sum(calls), 0)::bigint from tenant_calibration";
        client.query_one(stored, &[]).await.unwrap().get::<_, i64>(0)
    };
    // The first call waits for the vocabulary.
    run("before").await;
    eventually("the first call to teach something", || async { learnt().await > 0 }).await;
    for n in 0..TURNS {
        run(&format!("s{n}")).await;
    }
    let all = learnt().await;
    assert!((32..=AT_MOST).contains(&(all - 1)), "{all}");
    run("after").await;
    eventually("a call after the write to teach something", || async { learnt().await > all }).await;
}

/// Row A11: the counting endpoints of both kinds of servers are outside of the version path of their address.
#[tokio::test(flavor = "multi_thread")]
async fn an_exact_count_calls_the_providers_counting_endpoint() {
    let tables = [
        ("vllm", vec![json!({"count": 321, "max_model_len": 4096})], vec!["/tokenize"]),
        (
            "llamacpp",
            vec![json!({"prompt": "<s>Hello"}), json!({"tokens": [1, 2, 3]})],
            vec!["/apply-template", "/tokenize"],
        ),
    ];
    for (dialect, answers, paths) in tables {
        let upstream = Upstream::start().await;
        let (_database, replica) = Replica::alone(upstream.options(dialect)).await;
        let mut contexts = ContextServiceClient::new(replica.channel().await);
        let request =
            pb::CountTokensRequest { model: "main/small".to_owned(), exact: true, tools: tools(&["look"]), ..hello() };
        for answer in &answers {
            upstream.answer(Reply::json(200, answer));
        }
        let (total, _) = count(&mut contexts, request.clone()).await;
        let expected = if dialect == "vllm" { 321 } else { 3 };
        assert_eq!((total.tokens, total.basis(), total.margin), (expected, TokenBasis::Actual, 0), "{dialect}");
        assert_eq!(total.estimator, "");
        let asked = upstream.requests();
        assert_eq!(asked.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), paths, "{dialect}");
        assert_eq!(asked[0].json["messages"][0]["content"], "Hello, world!");
        assert_eq!(asked[0].json["tools"][0]["function"]["name"], "look");
        upstream.answer(Reply::error(400, "broken", "No."));
        let refused = refusal(&contexts.count_tokens(request).await.unwrap_err());
        assert_eq!((refused.reason.as_str(), refused.metadata["provider"].as_str()), ("PROVIDER_FAILED", "main"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_count_of_a_provider_that_does_not_count_is_a_prediction() {
    let (_database, _replica, mut contexts) = service().await;
    let (predicted, _) = count(&mut contexts, hello()).await;
    let exact = pb::CountTokensRequest { exact: true, ..hello() };
    assert_eq!(count(&mut contexts, exact).await.0, predicted);
}

/// Row L1
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_vocabulary_is_logged_once() {
    let script = json!({"steps": [{"say": [{"text": "Hello."}]}]});
    let place = Place::new("").script("one", &script).script("two", &script);
    let mut served = place.serve_over(&TestDatabase::new().await).await;
    let mut contexts = ContextServiceClient::new(served.channel().await);
    for model in ["scripted/one", "scripted/two", "scripted/one"] {
        let request = pb::CountTokensRequest { model: model.to_owned(), ..hello() };
        contexts.count_tokens(request).await.unwrap();
    }
    served.terminate();
    served.ended().await;
    let logged = served.log_text();
    assert_eq!(logged.matches("vocabulary is unknown").count(), 1, "{logged}");
}
