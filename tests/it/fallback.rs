//! Turns that continue with a fallback model of their policy when their own model cannot be called: the errors that
//! trigger it, the events, the requests, and what is kept.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contextd::{
    model::{
        DeclaredModel,
        compaction::CompactionPolicy,
        config::{ContextPolicy, PruneMode, PrunePolicy},
    },
    pb::{self, CompletionReason, FailureReason, TurnState, event::Payload},
    provider::anthropic::Anthropic,
};
use serde_json::json;
use tonic::Code;

use crate::harness::{
    Host, Options,
    events::{
        all, completed, failed, kind, kinds, message_text, messages, outline, requested, seqs, turn_id, until,
        until_action, until_written,
    },
    host::{answering, call, refusal, until as eventually},
    requests::{result, tools, turn},
    upstream::{
        Reply, Upstream,
        anthropic::{Answer, refused},
        declaring, event, finished, said as answer,
    },
    validate::Api,
};

const FIRST: &str = "first/gpt-4o";
const SECOND: &str = "second/gpt-4o";
const THIRD: &str = "third/gpt-4o";

/// Three services, and a replica that makes at most two attempts per model.
struct Services {
    host: Host,
    first: Upstream,
    second: Upstream,
    third: Upstream,
}

impl Services {
    async fn with(options: Options) -> Self {
        let [first, second, third] = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
        let host = Host::with(options_of(options, &[&first, &second, &third])).await;
        Self { host, first, second, third }
    }

    async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// The number of calls of each service.
    fn calls(&self) -> [usize; 3] {
        [&self.first, &self.second, &self.third].map(|service| service.requests().len())
    }
}

fn options_of(options: Options, services: &[&Upstream]) -> Options {
    let named = ["first", "second", "third"].into_iter().zip(services);
    let options = Options { call_attempts: 2, ..options };
    named.fold(options, |options, (name, service)| {
        let windows = [("gpt-4o", if name == "second" { 8_000 } else { 100_000 })];
        let provider = declaring(name, service.settings(), "openai", &windows);
        options.provider(name, Arc::new(provider))
    })
}

/// A turn in a session on the first of these models, with the others as fallbacks.
fn asks(models: &[&str]) -> pb::ExecuteTurnRequest {
    let [own, others @ ..] = models else { panic!("a session has a model") };
    pb::ExecuteTurnRequest {
        session: Some(pb::Session {
            model: (*own).to_owned(),
            tools: tools(&["look"]),
            policy_overrides: Some(pb::Policy {
                fallback_models: others.iter().map(|&model| model.to_owned()).collect(),
                ..pb::Policy::default()
            }),
            ..pb::Session::default()
        }),
        ..turn("s", "", "Go on.")
    }
}

fn overloaded() -> Reply {
    Reply::error(503, "overloaded", "Too many.")
}

fn looks() -> Reply {
    let look = json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "look", "arguments": "{}"}}]});
    Reply::events([event(&look), finished("tool_calls")].concat())
}

fn fallbacks(events: &[pb::Event]) -> Vec<(pb::Event, pb::ModelFallback)> {
    let fallback = |event: &pb::Event| match &event.payload {
        Some(Payload::ModelFallback(fallback)) => Some((event.clone(), fallback.clone())),
        _ => None,
    };
    events.iter().filter_map(fallback).collect()
}

/// Rows D20 and F21
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_with_the_next_model_when_its_own_cannot_be_called() {
    use FailureReason::{ProviderAuth, ProviderBadRequest, ProviderOverloaded, ProviderRateLimited, ProviderTimeout};
    let table = [
        (503, "overloaded", 2, ProviderOverloaded),
        (529, "overloaded_error", 2, ProviderOverloaded),
        (429, "rate_limit_exceeded", 2, ProviderRateLimited),
        (504, "timeout", 2, ProviderTimeout),
        (402, "insufficient_quota", 1, ProviderRateLimited),
        (401, "invalid_api_key", 1, ProviderAuth),
        (404, "model_not_found", 1, ProviderBadRequest),
        (410, "gone", 1, ProviderBadRequest),
        (400, "model_decommissioned", 1, ProviderBadRequest),
    ];
    for (status, code, calls, reason) in table {
        let services = Services::start().await;
        for _ in 0..calls {
            services.first.answer(Reply::error(status, code, "No."));
        }
        services.second.answer(Reply::events(answer(&["Done."])));
        let seen = services.host.run(asks(&[FIRST, SECOND, THIRD])).await;
        let retry = ["usage_recorded", "turn_retrying"];
        let expected = [
            &["turn_started", "message_committed", "step_started"][..],
            if calls == 2 { &retry[..] } else { &[] },
            &retry,
            &["model_fallback", "message_committed", "usage_recorded", "turn_completed"],
        ]
        .concat();
        let durable: Vec<_> = kinds(&seen).into_iter().filter(|kind| *kind != "notice").collect();
        assert_eq!(durable, expected, "{status} {code}");
        assert_eq!(seqs(&seen), (1..=i64::try_from(expected.len()).unwrap()).collect::<Vec<_>>());
        let [(event, fallback)] = &fallbacks(&seen)[..] else { panic!("not one fallback") };
        assert_eq!((event.step, event.attempt), (1, calls), "{status} {code}");
        assert_eq!(
            (fallback.from_model.as_str(), fallback.to_model.as_str(), fallback.reason()),
            (FIRST, SECOND, reason),
            "{status} {code}"
        );
        let answer = messages(&seen).pop().unwrap();
        assert_eq!(message_text(answer), "Done.");
        assert_eq!(answer.response.as_ref().unwrap().model, SECOND);
        assert_eq!(services.calls(), [usize::try_from(calls).unwrap(), 1, 0], "{status} {code}");
        let end = completed(&seen).result.as_ref().unwrap();
        assert_eq!(end.total_usage.unwrap().calls, i64::from(calls) + 1);
        let stored = services.host.turn("s", &turn_id(&seen)).await;
        assert_eq!(stored.model, SECOND, "the model that it ended with");
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_be_reached_is_replaced_too() {
    let second = Upstream::start().await;
    second.answer(Reply::events(answer(&["Done."])));
    let gone = Upstream::start().await;
    let options = options_of(Options::default(), &[&gone, &second]);
    drop(gone);
    let host = Host::with(options).await;
    let seen = host.run(asks(&[FIRST, SECOND])).await;
    let [(_, fallback)] = &fallbacks(&seen)[..] else { panic!("not one fallback: {:?}", kinds(&seen)) };
    assert_eq!(fallback.reason(), FailureReason::ProviderBroken);
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_request_do_not_change_the_model() {
    use FailureReason::{ContextOverflow, ProviderBadRequest};
    let flagged = json!({"error": {"message": "Flagged.", "code": 403, "metadata": {"reasons": ["violence"], "flagged_input": "Go on."}}});
    let table = [
        (Reply::error(400, "content_filter", "Filtered."), ProviderBadRequest),
        (Reply::json(403, &flagged), ProviderBadRequest),
        (Reply::error(400, "invalid_request_error", "Bad."), ProviderBadRequest),
        (Reply::error(400, "context_length_exceeded", "Too long."), ContextOverflow),
    ];
    for (reply, reason) in table {
        let services = Services::start().await;
        services.first.answer(reply);
        let seen = services.host.run(asks(&[FIRST, SECOND])).await;
        assert_eq!(failed(&seen).failure.as_ref().unwrap().reason(), reason);
        assert_eq!((services.calls(), fallbacks(&seen).len()), ([1, 0, 0], 0));
    }
    let services = Services::start().await;
    services.first.answer(Reply::events([event(&json!({"content": "So"})), finished("content_filter")].concat()));
    let seen = services.host.run(asks(&[FIRST, SECOND])).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::ContentFilter);
    assert_eq!(services.calls(), [1, 0, 0]);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_a_model_left_fails_as_its_last_call_did() {
    let services = Services::start().await;
    for _ in 0..2 {
        services.first.answer(overloaded());
    }
    services.second.answer(Reply::error(401, "invalid_api_key", "No."));
    for words in ["Three.", "Four."] {
        services.third.answer(Reply::error(500, "broken", words));
    }
    let seen = services.host.run(asks(&[FIRST, SECOND, THIRD])).await;
    let failure = failed(&seen).failure.as_ref().unwrap();
    assert_eq!(
        (failure.reason(), failure.provider.as_str(), failure.message.as_str()),
        (FailureReason::ProviderOverloaded, "third", "Four.")
    );
    assert_eq!(services.calls(), [2, 1, 2], "each has its own retries");
    let told = fallbacks(&seen);
    let order: Vec<_> = told.iter().map(|(event, fallback)| (event.attempt, fallback.to_model.as_str())).collect();
    assert_eq!(order, [(2, SECOND), (3, THIRD)]);
    assert_eq!(outline(&services.host.messages("s").await), ["USER: \"Go on.\""]);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_model_is_listed_goes_on_with_those_that_follow_it() {
    let services = Services::start().await;
    for service in [&services.second, &services.third] {
        service.answer(Reply::error(401, "invalid_api_key", "No."));
    }
    let request = pb::ExecuteTurnRequest { model: SECOND.to_owned(), ..asks(&[FIRST, SECOND, THIRD]) };
    let seen = services.host.run(request).await;
    assert_eq!(failed(&seen).failure.as_ref().unwrap().reason(), FailureReason::ProviderAuth);
    assert_eq!(services.calls(), [0, 1, 1]);
}

/// Rows D3 and D20
#[tokio::test(flavor = "multi_thread")]
async fn text_of_the_model_that_failed_is_voided() {
    let services = Services::start().await;
    let error = "data: {\"error\":{\"message\":\"No more.\",\"code\":\"insufficient_quota\"}}\n\n";
    services.first.answer(Reply::events(event(&json!({"content": "Half of"}))).hold("shown").then(error));
    services.second.answer(Reply::events(answer(&["All."])));
    let mut stream = services.host.execute(asks(&[FIRST, SECOND])).await;
    let mut seen = until_written(&mut stream, "Half of").await;
    services.first.release("shown");
    seen.extend(all(&mut stream).await);
    let shown = seen.iter().find_map(|event| match &event.payload {
        Some(Payload::TextDelta(delta)) => Some(delta.message_id.clone()),
        _ => None,
    });
    let voided = seen.iter().find_map(|event| match &event.payload {
        Some(Payload::TurnRetrying(retrying)) => Some(retrying.voided_message_id.clone()),
        _ => None,
    });
    assert_eq!(voided, shown);
    assert_eq!(fallbacks(&seen).len(), 1);
    assert_eq!(outline(&services.host.messages("s").await), ["USER: \"Go on.\"", "ASSISTANT: \"All.\""]);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_turn_calls_the_fallback_and_the_next_turn_the_sessions_model() {
    let services = Services::with(Options { context: ContextPolicy::default(), ..Options::default() }).await;
    for _ in 0..2 {
        services.first.answer(overloaded());
    }
    services.second.answer(looks());
    services.second.answer(Reply::events(answer(&["Done."])));
    let host = &services.host;
    let mut stream = host.execute(asks(&[FIRST, SECOND])).await;
    let (mut seen, _) = until_action(&mut stream).await;
    let stats = host.stats("s").await;
    assert_eq!((stats.model.as_str(), stats.context_window), (SECOND, 8_000));
    let calls = requested(&seen);
    host.submit("s", vec![result(&calls[0], "fine")]).await;
    seen.extend(all(&mut stream).await);
    assert_eq!(services.calls(), [2, 2, 0]);
    let models: Vec<_> = seen
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::StepStarted(started)) => Some(started.model.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(models, [FIRST, SECOND]);
    assert_eq!(fallbacks(&seen).len(), 1);

    services.first.answer(Reply::events(answer(&["Again."])));
    let seen = host.run(turn("s", "", "And now?")).await;
    assert_eq!(message_text(messages(&seen).last().unwrap()), "Again.");
    assert_eq!(services.calls(), [3, 2, 0]);
    assert_eq!(host.stats("s").await.model, FIRST);
    assert_eq!(host.session("s").await.model, FIRST);
}

/// Rows D20 and F2
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_taken_over_after_a_fallback_goes_on_with_the_fallback() {
    let services = Services::start().await;
    services.first.answer(Reply::error(401, "invalid_api_key", "No."));
    services.second.answer(Reply::events(event(&json!({"content": "Half"}))).stall());
    let host = &services.host;
    let all_of = [&services.first, &services.second, &services.third];
    let heir = host.beside(options_of(Options::default(), &all_of)).await;
    let mut own = host.execute(asks(&[FIRST, SECOND])).await;
    let head = until_written(&mut own, "Half").await;
    services.second.answer(Reply::events(answer(&["Whole."])));
    host.simulate_crash().await;

    let mut watch = heir.watch("s", &turn_id(&head), 0).await;
    let seen = all(&mut watch).await;
    assert!(kinds(&seen).contains(&"turn_recovered"), "{:?}", kinds(&seen));
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    assert_eq!(message_text(messages(&seen).last().unwrap()), "Whole.");
    assert_eq!(services.calls(), [1, 2, 0], "the first is not called again");
    assert_eq!(fallbacks(&seen).len(), 1);
    let numbered: Vec<i64> = (1..).take(seqs(&seen).len()).collect();
    assert_eq!(seqs(&seen), numbered);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_no_longer_configured_is_replaced() {
    let second = Upstream::start().await;
    second.answer(Reply::events(answer(&["Done."])));
    let script = json!([[{"text": "Let me look."}, call("look")]]);
    let before = options_of(answering(script.as_array().unwrap()), &[&second, &second]);
    let before = Host::with(before).await;
    let mut stream = before.execute(asks(&["scripted/it", SECOND])).await;
    let (head, _) = until_action(&mut stream).await;
    let turn = turn_id(&head);
    before.replica.drain(Duration::ZERO).await;

    let host = before.beside(options_of(Options::default(), &[&second, &second])).await;
    host.submit("s", vec![result(&requested(&head)[0], "found")]).await;
    eventually("the turn to end", || async { host.turn("s", &turn).await.state() == TurnState::Completed }).await;
    let seen = host.events("s", "", 0, 100).await;
    let [(_, fallback)] = &fallbacks(&seen)[..] else { panic!("not one fallback: {:?}", kinds(&seen)) };
    assert_eq!((fallback.from_model.as_str(), fallback.reason()), ("scripted/it", FailureReason::ModelNotFound));
    host.assert_counted("s").await;
}

/// Rows D20 and A1
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_stays_with_the_model_that_wrote_it_across_a_fallback() {
    let claude = Upstream::start().await;
    let chat = Upstream::start().await;
    let declared = DeclaredModel { context_window: Some(100_000), ..DeclaredModel::default() };
    let models = BTreeMap::from([("claude-haiku-5-5".to_owned(), declared)]);
    let provider = Anthropic::new("claude", claude.settings_for(Api::Anthropic), models).unwrap();
    let options = options_of(Options::default(), &[&chat]).provider("claude", Arc::new(provider));
    let host = Host::with(options).await;
    let thinks = Answer::default().thinking("Let me look.").call("c1", "look", &json!({}));
    claude.answer(thinks.reply());
    for _ in 0..2 {
        claude.answer(refused(529, "overloaded_error", "Overloaded."));
    }
    chat.answer(Reply::events(answer(&["It is fine."])));
    let fine = |call: &pb::ToolCall| result(&call.call_id, "fine");
    let request = asks(&["claude/claude-haiku-5-5", FIRST]);
    let seen = host.run_with(request, fine).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop);
    let [(event, _)] = &fallbacks(&seen)[..] else { panic!("not one fallback") };
    assert_eq!((event.step, event.attempt), (2, 2));
    let sent = chat.requests().pop().unwrap();
    assert!(!sent.body.contains("Let me look."), "{}", sent.body);
    assert!(sent.body.contains("fine"), "the result is sent");

    claude.answer(Answer::default().said(&["Still."]).reply());
    let seen = host.run(turn("s", "", "And now?")).await;
    assert_eq!(message_text(messages(&seen).last().unwrap()), "Still.");
    let sent = claude.requests().pop().unwrap();
    assert!(sent.body.contains("It is fine."), "{}", sent.body);
    assert!(claude.refused().is_empty() && chat.refused().is_empty());
}

/// Rows D20 and I7
#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_is_made_to_fit_the_window_of_the_fallback() {
    let context = ContextPolicy {
        compaction: CompactionPolicy { enabled: false, ..CompactionPolicy::default() },
        prune: PrunePolicy {
            mode: PruneMode::OnOverflow,
            minimum_tokens: 1,
            protect_tokens: 0,
            protect_turns: 0,
            ..PrunePolicy::default()
        },
        ..ContextPolicy::default()
    };
    let services = Services::with(Options { context, ..Options::default() }).await;
    services.first.answer(looks());
    services.first.answer(looks());
    for _ in 0..2 {
        services.first.answer(overloaded());
    }
    services.second.answer(Reply::events(answer(&["Done."])));
    let host = &services.host;
    let much = |call: &pb::ToolCall| result(&call.call_id, &"word ".repeat(4_000));
    let seen = host.run_with(asks(&[FIRST, SECOND]), much).await;
    assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{:?}", kinds(&seen));
    let [(_, fallback)] = &fallbacks(&seen)[..] else { panic!("not one fallback") };
    assert_eq!(fallback.context_window, 8_000);
    let after: Vec<_> = kinds(&seen).into_iter().skip_while(|kind| *kind != "model_fallback").collect();
    assert!(after.contains(&"context_pruned"), "{after:?}");
    assert_eq!(services.calls(), [4, 1, 0]);
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_after_a_fallback_ends_the_turn() {
    let services = Services::start().await;
    services.first.answer(Reply::error(401, "invalid_api_key", "No."));
    services.second.answer(Reply::events(event(&json!({"content": "Half"}))).stall());
    let host = &services.host;
    let mut stream = host.execute(asks(&[FIRST, SECOND])).await;
    let head = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
    assert_eq!(fallbacks(&head).len(), 1);
    host.cancel("s", "").await;
    assert_eq!(kind(all(&mut stream).await.last().unwrap()), "turn_cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_models_that_do_not_exist_are_refused() {
    let services = Services::start().await;
    let status = services.host.try_execute(asks(&[FIRST, "nowhere/gpt-4o"])).await.unwrap_err();
    let (code, reason, _) = refusal(&status, "");
    assert_eq!((code, reason.as_str()), (Code::NotFound, "MODEL_NOT_FOUND"));
    let status = services.host.try_execute(asks(&[FIRST, SECOND, FIRST])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("fallback_models[1]"), "{}", status.message());
}
