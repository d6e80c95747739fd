//! The context size anchor and its counters after every operation that produces a different context. GetContextStats,
//! RenderContext and CountTokens must agree.

use std::sync::Arc;

use contextd::pb::{self, CancelMode, TokenBasis};
use serde_json::{Value, json};

use crate::harness::{
    Host,
    events::{messages, until_action},
    host::{MODEL, answering, call, script},
    requests::{tools, turn},
    transcripts::{fork, one_turn, says},
    upstream::Upstream,
};

const OTHER: &str = "scripted/other";

fn reports(words: &str, input: u32, output: u32) -> Value {
    json!([{"text": words}, {"finish": {"reason": "stop", "usage": {"input": input, "output": output}}}])
}

async fn host() -> Host {
    let options = answering(&[reports("Fine.", 5_000, 100)]).script("other", script(&[reports("Yes.", 300, 10)]));
    Host::with(options).await
}

/// The size and its basis. Fails if GetContextStats, RenderContext and CountTokens disagree.
async fn size(host: &Host, session: &str) -> (i32, TokenBasis) {
    let stats = host.stats(session).await;
    let used = stats.used.clone().unwrap();
    let parts: i32 = stats.categories.iter().filter(|share| share.in_total).map(|share| share.tokens).sum();
    assert_eq!(parts, used.tokens, "the parts add up");
    let render = pb::RenderContextRequest { session_id: session.to_owned(), ..Default::default() };
    let prompt = host.contexts().render_context(render).await.unwrap().into_inner().prompt.unwrap();
    assert_eq!(prompt.tokens.as_ref(), Some(&used));
    if stats.size_basis.unwrap().last_input_tokens > 0 {
        let count = pb::CountTokensRequest { session_id: session.to_owned(), ..Default::default() };
        assert_eq!(host.contexts().count_tokens(count).await.unwrap().into_inner().total.unwrap(), used);
    }
    let kept =
        "select r.ctx_messages = (select count(*) from messages m where m.session_id = $1 and m.voided_at_seq is null)
                  from session_run r where session_id = $1";
    let row = host.database.client().await.query_one(kept, &[&session]).await.unwrap();
    assert!(row.get::<_, bool>(0), "the counters are a recount");
    (used.tokens, used.basis())
}

/// Rows A3 and A7
#[tokio::test(flavor = "multi_thread")]
async fn counting_a_session_starts_from_its_anchor() {
    let host = host().await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host.run(turn("s", "", "Hello")).await;
    assert_eq!(size(&host, "s").await, (5_100, TokenBasis::Actual));
    let messages = vec![says(pb::Role::User, "What is there?")];
    let count = |model: &str| pb::CountTokensRequest {
        session_id: "s".to_owned(),
        model: model.to_owned(),
        messages: messages.clone(),
        ..Default::default()
    };
    let counted = host.contexts().count_tokens(count("")).await.unwrap().into_inner();
    let total = counted.total.unwrap();
    // Once a message follows the response, the response counts as a message: 4 more tokens.
    assert_eq!(total.tokens, 5_100 + 4 + counted.message_tokens[0].tokens);
    assert_ne!(total.basis(), TokenBasis::Actual, "the message is an estimate");
    assert_eq!(counted.categories.iter().map(|share| share.tokens).sum::<i32>(), total.tokens);
    let other = host.contexts().count_tokens(count(OTHER)).await.unwrap().into_inner();
    assert!(other.total.unwrap().tokens < 100, "another model measured nothing");
    let tools = pb::CountTokensRequest { tools: tools(&["look", "dig"]), ..count("") };
    let with_tools = host.contexts().count_tokens(tools).await.unwrap().into_inner().total.unwrap();
    assert!(with_tools.tokens > total.tokens, "tools in place of none are new");
}

/// Rows A3, A7 and D30
#[tokio::test(flavor = "multi_thread")]
async fn a_model_switch_starts_a_new_anchor_and_keeps_the_old_one_until_then() {
    let host = host().await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host.run(turn("s", "", "Hello")).await;
    let switch = |model: &str| pb::UpdateSessionRequest {
        session: Some(pb::Session { session_id: "s".to_owned(), model: model.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    host.sessions().update_session(switch(OTHER)).await.unwrap();
    let (estimated, basis) = size(&host, "s").await;
    assert!(estimated < 100 && basis == TokenBasis::Heuristic, "{estimated} {basis:?}");
    host.sessions().update_session(switch(MODEL)).await.unwrap();
    assert_eq!(size(&host, "s").await, (5_100, TokenBasis::Actual), "nothing was measured in between");
    host.sessions().update_session(switch(OTHER)).await.unwrap();
    host.run(turn("s", "", "Hello?")).await;
    assert_eq!(size(&host, "s").await, (310, TokenBasis::Actual));
}

/// Rows A3 and A7
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_estimated_until_its_first_call_and_its_source_keeps_its_anchor() {
    let host = host().await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host.run(turn("s", "", "Hello")).await;
    host.try_fork(fork("s", 0, "f")).await.unwrap();
    let (estimated, basis) = size(&host, "f").await;
    assert!(estimated < 100 && basis == TokenBasis::Heuristic, "{estimated} {basis:?}");
    assert_eq!(host.stats("f").await.last_estimate, None);
    assert_eq!(size(&host, "s").await, (5_100, TokenBasis::Actual));
    host.run(turn("f", "", "And?")).await;
    assert_eq!(size(&host, "f").await, (5_100, TokenBasis::Actual));
}

/// Row A3
#[tokio::test(flavor = "multi_thread")]
async fn appended_messages_are_estimated_after_the_anchor() {
    let host = host().await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    host.append("s", one_turn("c0", 30)).await;
    let (before, _) = size(&host, "s").await;
    host.run(turn("s", "", "Hello")).await;
    host.append("s", one_turn("c1", 30)).await;
    let (after, basis) = size(&host, "s").await;
    assert_eq!((after, basis), (5_100 + before - 3, TokenBasis::Heuristic), "3 tokens make every model answer");
}

/// Rows A7 and D18
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_restores_the_previous_anchor() {
    let upstream = Upstream::start().await;
    let options = answering(&[reports("Fine.", 5_000, 100)])
        .script(
            "calls",
            script(&[
                json!([call("look"), {"finish": {"reason": "tool_calls", "usage": {"input": 7_000, "output": 9}}}]),
            ]),
        )
        .provider("main", Arc::new(upstream.provider("main", "openai")));
    let host = Host::with(options).await;
    host.create(pb::Session { session_id: "s".to_owned(), model: MODEL.to_owned(), ..Default::default() }).await;
    let first = host.run(turn("s", "", "Hello")).await;
    assert_eq!(messages(&first).len(), 2);
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", "scripted/calls", "Look.") };
    let mut stream = host.execute(request).await;
    until_action(&mut stream).await;
    let rollback =
        pb::CancelTurnRequest { session_id: "s".to_owned(), mode: CancelMode::Rollback.into(), ..Default::default() };
    host.turns().cancel_turn(rollback).await.unwrap();
    host.at_rest().await;
    let stats = host.stats("s").await;
    assert_eq!(stats.size_basis.unwrap().last_input_tokens, 5_000, "not with what is gone");
    // The tools of the newest turn are counted.
    let tools: i32 = stats.tools.iter().map(|tool| tool.tokens).sum();
    let used = stats.used.unwrap();
    assert_eq!((used.tokens, used.basis()), (5_100 + tools, TokenBasis::Heuristic));
}

/// Rows A7 and A11
#[tokio::test(flavor = "multi_thread")]
async fn appended_messages_are_counted_as_the_model_will_read_them() {
    const FIGURES: &str = "3.14159 2.71828 1.41421 1.61803";
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai").script("it", script(&[json!([{"text": "Fine."}])]))).await;
    for (id, model, estimator) in [("gpt", "main/gpt-4o", "o200k+gpt-4-chat"), ("any", MODEL, "heuristic")] {
        let session = pb::Session { session_id: id.to_owned(), model: model.to_owned(), ..Default::default() };
        host.create(session).await;
        let said = || {
            let mut said = one_turn("c0", 30);
            said.insert(0, says(pb::Role::User, FIGURES));
            said
        };
        let count = pb::CountTokensRequest { model: model.to_owned(), messages: said(), ..Default::default() };
        let counted = host.contexts().count_tokens(count).await.unwrap().into_inner().message_tokens;
        let counted: Vec<i32> = counted.into_iter().map(|count| count.tokens).collect();
        let (before, _) = size(&host, id).await;
        host.append(id, said()).await;
        let (after, basis) = size(&host, id).await;
        let stored = host.messages(id).await.into_iter().map(|message| message.tokens.unwrap().tokens);
        let stored: Vec<i32> = stored.collect();
        assert_eq!((after - before, basis), (stored.iter().sum(), TokenBasis::Heuristic));
        assert_eq!(stored == counted, model != MODEL, "{stored:?}, and by the vocabulary {counted:?}");
        let who = "select distinct estimator from parts where session_id = $1";
        let who: String = host.database.client().await.query_one(who, &[&id]).await.unwrap().get(0);
        assert_eq!(who, estimator);
    }
    assert!(upstream.requests().is_empty());
}
