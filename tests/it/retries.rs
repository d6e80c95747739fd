//! Retries of failed model calls: the events for readers, what is kept, and what stops retries. Every test runs with a
//! scripted model and with a service over HTTP.

use contextd::pb::{self, CompletionReason, FailurePhase, FailureReason, TurnState, event::Payload};
use serde_json::{Value, json};

use crate::harness::{
    Host, Options,
    events::{
        TEST_TIMEOUT, all, completed, durable, failed, kind, kinds, message_text, messages, outline, seqs, turn_id,
        until, until_action, written,
    },
    host::{answering, call, until as eventually},
    requests::{enqueue, result, tools, turn},
    transcripts::{calls, message, says},
    upstream::{Reply, Upstream, event, finished, said as answer},
};

/// One of the two kinds of model service, with planned responses.
struct Service {
    host: Host,
    model: &'static str,
    upstream: Option<Upstream>,
}

/// The response of a service to a call.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Returns this text.
    Say(&'static str),
    /// Calls the tool `look`.
    Call,
    /// Fails as overloaded before the first byte.
    Refuse,
    /// Returns this text, then fails.
    Break(&'static str),
    /// Fails because the prompt is too long.
    TooLong,
    /// Rejects the API key.
    WrongKey,
    /// Fails as rate limited, with a retry delay in milliseconds.
    Limit(u64),
}

impl Act {
    /// The response of a service over HTTP, after an attempt that returned `before`. A script repeats that text, so
    /// this does too.
    fn reply(self, before: &str) -> Reply {
        let look =
            json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "look", "arguments": "{}"}}]});
        match self {
            Self::Say(words) => Reply::events(answer(&[before, words])),
            Self::Call => Reply::events([event(&look), finished("tool_calls")].concat()),
            Self::Refuse => Reply::error(503, "overloaded", "Too many."),
            Self::Break(words) => {
                let broken = "data: {\"error\":{\"message\":\"Too many.\",\"code\":503}}\n\n";
                Reply::events(event(&json!({"content": words}))).hold("shown").then(broken)
            }
            Self::TooLong => Reply::error(400, "context_length_exceeded", "Too long."),
            Self::WrongKey => Reply::error(401, "invalid_api_key", "No."),
            Self::Limit(milliseconds) => {
                Reply::error(429, "rate_limit_exceeded", "Wait.").header("retry-after-ms", &milliseconds.to_string())
            }
        }
    }

    /// The response of a script, once.
    fn say(self) -> Vec<Value> {
        let error = |kind: &str| json!({"error": {"kind": kind, "message": "Too many.", "status": 503, "times": 1}});
        match self {
            Self::Say(words) => vec![json!({"text": words})],
            Self::Call => vec![call("look")],
            Self::Refuse => vec![error("overloaded")],
            Self::Break(words) => vec![json!({"text": words}), json!({"wait_for": "shown"}), error("overloaded")],
            Self::TooLong => vec![error("too_long")],
            Self::WrongKey => vec![error("auth")],
            Self::Limit(milliseconds) => {
                vec![
                    json!({"error": {"kind": "rate_limited", "message": "Wait.", "retry_after_ms": milliseconds, "times": 1}}),
                ]
            }
        }
    }
}

impl Service {
    /// Creates both kinds of service with these responses, in order. A script distinguishes calls by the earlier
    /// responses, so failures are placed at the beginning of the response that follows them.
    async fn both(options: &Options, steps: &[&[Act]]) -> Vec<Self> {
        let upstream = Upstream::start().await;
        for acts in steps {
            let mut before = "";
            for act in *acts {
                upstream.answer(act.reply(before));
                if let Act::Break(words) = act {
                    before = words;
                }
            }
        }
        let options = Options { call_attempts: 3, ..options.clone() };
        let over_http = Options { providers: upstream.options("openai").providers, ..options.clone() };
        let answers: Vec<Value> =
            steps.iter().map(|acts| Value::Array(acts.iter().flat_map(|act| act.say()).collect())).collect();
        let scripted = Options { scripts: answering(&answers).scripts, ..options };
        vec![
            Self { host: Host::with(over_http).await, model: "main/gpt-4o", upstream: Some(upstream) },
            Self { host: Host::with(scripted).await, model: "scripted/it", upstream: None },
        ]
    }

    fn asks(&self) -> pb::ExecuteTurnRequest {
        pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", self.model, "Go on.") }
    }

    async fn run(&self) -> Vec<pb::Event> {
        self.release("shown");
        self.host.run_with(self.asks(), |call| result(&call.call_id, "fine")).await
    }

    fn release(&self, signal: &str) {
        self.host.release(signal);
        if let Some(upstream) = &self.upstream {
            upstream.release(signal);
        }
    }

    /// The number of calls of the model.
    fn calls(&self) -> usize {
        self.upstream.as_ref().map_or_else(|| self.host.replica.scripted.prompts().len(), |it| it.requests().len())
    }
}

fn retrying(events: &[pb::Event]) -> Vec<(&pb::Event, &pb::TurnRetrying)> {
    events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::TurnRetrying(retrying)) => Some((event, retrying)),
            _ => None,
        })
        .collect()
}

/// Rows D20, D27
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_before_its_first_delta_is_retried() {
    for service in Service::both(&Options::default(), &[&[Act::Refuse, Act::Say("Done.")]]).await {
        let seen = service.run().await;
        assert_eq!(
            kinds(&seen),
            [
                "turn_started",
                "message_committed",
                "step_started",
                "usage_recorded",
                "turn_retrying",
                "message_committed",
                "usage_recorded",
                "turn_completed"
            ],
            "{}",
            service.model
        );
        let [(event, retrying)] = retrying(&seen)[..] else { panic!("not one retry") };
        assert_eq!((event.step, event.attempt, retrying.next_attempt), (1, 1, 2));
        assert_eq!(retrying.voided_message_id, "", "nothing was shown");
        let failure = retrying.failure.as_ref().unwrap();
        assert_eq!((failure.reason(), failure.phase()), (FailureReason::ProviderOverloaded, FailurePhase::Generate));
        assert_eq!((failure.recoverable, failure.provider_status, failure.message.as_str()), (true, 503, "Too many."));
        let committed = seen.iter().rfind(|event| kind(event) == "message_committed").unwrap();
        assert_eq!((committed.step, committed.attempt), (1, 2));
        let end = completed(&seen).result.as_ref().unwrap();
        assert_eq!((end.step_count, end.total_usage.unwrap().calls), (1, 2), "both calls are counted");
        assert_eq!(service.calls(), 2);
        assert_eq!(outline(&service.host.messages("s").await), ["USER: \"Go on.\"", "ASSISTANT: \"Done.\""]);
    }
}

/// Rows D3, D27
#[tokio::test(flavor = "multi_thread")]
async fn partial_text_of_a_retried_call_is_voided_and_nothing_is_duplicated() {
    for service in Service::both(&Options::default(), &[&[Act::Break("Half of"), Act::Say(" the whole.")]]).await {
        let mut stream = service.host.execute(service.asks()).await;
        let mut seen = until(&mut stream, |payload| matches!(payload, Payload::TextDelta(_))).await;
        let mut late = service.host.watch("s", "", 0).await;
        let head = until(&mut late, |payload| matches!(payload, Payload::Sync(_))).await;
        let Some(Payload::Sync(sync)) = &head.last().unwrap().payload else { unreachable!() };
        let open = sync.open_message.clone().expect("the open message");
        service.release("shown");
        seen.extend(all(&mut stream).await);
        let [(retry, retrying)] = retrying(&seen)[..] else { panic!("not one retry: {:?}", kinds(&seen)) };
        assert_eq!(retrying.voided_message_id, open.message_id, "{}", service.model);
        assert_eq!(retrying.failure.as_ref().unwrap().phase(), FailurePhase::Stream);
        let final_message = messages(&seen).last().unwrap().message_id.clone();
        assert_ne!(final_message, open.message_id, "a new attempt has a new message");

        // A reader that discards void deltas has the response once, equal to the committed one.
        let mut shown = written(&seen);
        shown.retain(|(message, _), _| *message != retrying.voided_message_id);
        assert!(shown.values().all(|text| *text == "Half of the whole."), "{shown:?}");
        assert_eq!(message_text(messages(&seen).last().unwrap()), "Half of the whole.");
        let after = seen.iter().skip_while(|event| event.seq != retry.seq);
        let stale = after.filter(
            |event| matches!(&event.payload, Some(Payload::TextDelta(delta)) if delta.message_id == open.message_id),
        );
        assert_eq!(stale.count(), 0, "a delta of the void message behind its retry");

        let rest = until(&mut late, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
        assert_eq!(seqs(&[head, rest].concat()), seqs(&seen), "a reader who came late is told the same");
        let stored = service.host.messages("s").await;
        assert_eq!(outline(&stored), ["USER: \"Go on.\"", "ASSISTANT: \"Half of the whole.\""]);
    }
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn steps_continue_after_a_retry_and_no_tool_runs_twice() {
    let steps: [&[Act]; 2] = [&[Act::Break("Hm."), Act::Call], &[Act::Refuse, Act::Say("Done.")]];
    for service in Service::both(&Options::default(), &steps).await {
        let seen = service.run().await;
        assert_eq!(completed(&seen).reason(), CompletionReason::Stop, "{}", service.model);
        let attempts: Vec<_> =
            retrying(&seen).iter().map(|(event, retry)| (event.step, event.attempt, retry.next_attempt)).collect();
        assert_eq!(attempts, [(1, 1, 2), (2, 1, 2)], "{}", service.model);
        assert_eq!(kinds(&seen).iter().filter(|kind| **kind == "tool_call_requested").count(), 1);
        assert_eq!(completed(&seen).result.as_ref().unwrap().step_count, 2);
        assert_eq!(message_text(service.host.messages("s").await.last().unwrap()), "Done.");
    }
}

/// Rows D20, D27 and I11
#[tokio::test(flavor = "multi_thread")]
async fn call_attempts_are_bounded_and_the_last_failure_ends_the_turn() {
    let service = {
        let upstream = Upstream::start().await;
        upstream.answer(Reply::error(500, "first", "One."));
        upstream.answer(Reply::events(event(&json!({"content": "Half"}))));
        upstream
            .answer(Reply::error(503, "third", "Three.").header("x-request-id", "req_3").header("retry-after-ms", "1"));
        let options = Options { call_attempts: 3, ..upstream.options("openai") };
        Service { host: Host::with(options).await, model: "main/gpt-4o", upstream: Some(upstream) }
    };
    let seen = service.run().await;
    let failure = failed(&seen).failure.clone().unwrap();
    assert_eq!((failure.reason(), failure.phase()), (FailureReason::ProviderOverloaded, FailurePhase::Generate));
    assert_eq!((failure.message.as_str(), failure.provider_code.as_str()), ("Three.", "third"));
    assert_eq!((failure.provider_status, failure.provider_request_id.as_str()), (503, "req_3"));
    assert_eq!(failure.retry_after.unwrap().nanos, 1_000_000);
    let causes: Vec<_> =
        retrying(&seen).iter().map(|(_, retry)| retry.failure.as_ref().unwrap().message.clone()).collect();
    assert_eq!(causes, ["One.", "the response ended without its end marker"]);
    assert_eq!(service.calls(), 3);
    assert_eq!(outline(&service.host.messages("s").await), ["USER: \"Go on.\""], "nothing of the attempts is kept");
    let stored = service.host.turn("s", &turn_id(&seen)).await;
    assert_eq!((stored.state(), stored.failure), (TurnState::Failed, Some(failure)));
}

/// Rows D20, D27
#[tokio::test(flavor = "multi_thread")]
async fn retry_is_not_attempted_for_permanent_errors() {
    for (act, reason) in [(Act::TooLong, FailureReason::ContextOverflow), (Act::WrongKey, FailureReason::ProviderAuth)]
    {
        for service in Service::both(&Options::default(), &[&[act, Act::Say("Never.")]]).await {
            let seen = service.run().await;
            assert_eq!(failed(&seen).failure.as_ref().unwrap().reason(), reason, "{}", service.model);
            assert_eq!((service.calls(), retrying(&seen).len()), (1, 0), "{}", service.model);
        }
    }
}

/// Rows D20 and D25
#[tokio::test(flavor = "multi_thread")]
async fn a_requested_retry_delay_is_honored_within_bounds() {
    for service in Service::both(&Options::default(), &[&[Act::Limit(30), Act::Say("Done.")]]).await {
        let seen = service.run().await;
        let [(_, retrying)] = retrying(&seen)[..] else { panic!("not one retry") };
        let delay = retrying.delay.unwrap();
        assert_eq!((delay.seconds, delay.nanos), (0, 30_000_000), "{}", service.model);
        assert_eq!(retrying.failure.as_ref().unwrap().retry_after, Some(delay));
        let at = seen.iter().position(|event| kind(event) == "turn_retrying").unwrap();
        let Some(Payload::Notice(notice)) = &seen[at + 1].payload else { panic!("{:?}", seen[at + 1]) };
        assert_eq!(notice.code(), pb::NoticeCode::WaitingForProvider);
        let provider = service.model.split('/').next().unwrap();
        assert_eq!(notice.text, format!("Waiting 1 s for the rate limit of {provider}"));
        completed(&seen);
    }
    for service in Service::both(&Options::default(), &[&[Act::Limit(61_000), Act::Say("Never.")]]).await {
        let seen = service.run().await;
        let failure = failed(&seen).failure.as_ref().unwrap();
        assert_eq!((failure.reason(), failure.retry_after.unwrap().seconds), (FailureReason::ProviderRateLimited, 61));
        assert_eq!(
            (service.calls(), failure.recoverable),
            (1, true),
            "{}: the host may come back later",
            service.model
        );
    }
}

/// Runs a turn until it waits for a retry, with a delay much longer than the test.
async fn waiting(options: &Options) -> Vec<(Service, tonic::Streaming<pb::ExecuteTurnResponse>, Vec<pb::Event>)> {
    let mut waiting = Vec::new();
    for service in Service::both(options, &[&[Act::Limit(50_000), Act::Say("Done.")]]).await {
        let mut stream = service.host.execute(service.asks()).await;
        let seen = until(&mut stream, |payload| matches!(payload, Payload::TurnRetrying(_))).await;
        waiting.push((service, stream, seen));
    }
    waiting
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_does_not_wait_for_the_next_retry() {
    for (service, mut stream, _) in Box::pin(waiting(&Options::default())).await {
        let answer = service.host.cancel("s", "").await;
        let outcome = answer.outcome();
        assert_eq!((answer.turn.unwrap().state(), outcome), (TurnState::Cancelled, pb::CancelOutcome::None));
        assert_eq!(kind(all(&mut stream).await.last().unwrap()), "turn_cancelled");
        assert_eq!(service.calls(), 1, "{}", service.model);
    }
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_waiting_for_a_retry_is_handed_over_on_shutdown() {
    for (service, stream, seen) in Box::pin(waiting(&Options::default())).await {
        drop(stream);
        let other = service.host.beside(Options { call_attempts: 3, ..options_of(&service) }).await;
        tokio::time::timeout(TEST_TIMEOUT, service.host.replica.drain(TEST_TIMEOUT))
            .await
            .expect("the drain waited for the retry");
        let turn = turn_id(&seen);
        eventually("the turn to end", || async { other.turn("s", &turn).await.state() == TurnState::Completed }).await;
        let told = other.events("s", "", 0, 100).await;
        let kinds = kinds(&told);
        assert!(kinds.contains(&"turn_recovered"), "{}: {kinds:?}", service.model);
        assert_eq!(completed(&told).reason(), CompletionReason::Stop);
        let attempts: Vec<i32> =
            durable(&told).iter().filter(|event| event.step == 1).map(|event| event.attempt).collect();
        assert_eq!(attempts.last(), Some(&3), "the third attempt: {attempts:?}");
    }
}

fn options_of(service: &Service) -> Options {
    match &service.upstream {
        Some(upstream) => upstream.options("openai"),
        None => answering(&[json!([{"text": "Done."}])]),
    }
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_during_a_retry_wait_leaves_the_turn_to_its_new_owner() {
    for (service, stream, seen) in Box::pin(waiting(&Options::default())).await {
        drop(stream);
        service.host.simulate_crash().await;
        let other = service.host.beside(Options { call_attempts: 3, ..options_of(&service) }).await;
        let turn = turn_id(&seen);
        eventually("the turn to end", || async { other.turn("s", &turn).await.state() == TurnState::Completed }).await;
        assert_eq!(
            outline(&other.messages("s").await),
            ["USER: \"Go on.\"", "ASSISTANT: \"Done.\""],
            "{}",
            service.model
        );
    }
}

/// Row D20
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_delay_beyond_the_turn_timeout_fails_the_turn_at_once() {
    for service in Service::both(&Options::default(), &[&[Act::Limit(50_000), Act::Say("Never.")]]).await {
        let limits = pb::TurnLimits {
            turn_timeout: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
            ..pb::TurnLimits::default()
        };
        let request = pb::ExecuteTurnRequest { limits: Some(limits), ..service.asks() };
        let seen = service.host.run(request).await;
        assert_eq!(failed(&seen).failure.as_ref().unwrap().reason(), FailureReason::ProviderRateLimited);
        assert_eq!(service.calls(), 1, "{}", service.model);
    }
}

/// Row D27
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_what_waits_and_the_end_are_dealt_with_over_http_as_elsewhere() {
    let steps: [&[Act]; 2] = [&[Act::TooLong, Act::Call], &[Act::Say("Fine.")]];
    let service = Service::both(&Options::default(), &steps).await.remove(0);
    let host = &service.host;
    let compaction = pb::CompactionPolicy { strategy: pb::CompactionStrategy::Truncation.into(), ..Default::default() };
    let policy = pb::Policy {
        compaction: Some(compaction),
        context_window: Some(5_500),
        output_reserve: Some(1_000),
        ..pb::Policy::default()
    };
    host.create(pb::Session {
        session_id: "s".to_owned(),
        model: service.model.to_owned(),
        policy_overrides: Some(policy),
        ..pb::Session::default()
    })
    .await;
    for looks in ["c1", "c2", "c3", "c4", "c5"] {
        let part = pb::Part {
            content: Some(pb::part::Content::ToolResult(result(looks, &"word ".repeat(1_000)))),
            ..pb::Part::default()
        };
        let said = [says(pb::Role::User, "Look."), calls(&[looks]), message(pb::Role::Tool, vec![part])];
        host.append("s", said.to_vec()).await;
    }
    let mut stream = host.execute(service.asks()).await;
    let (_, [open, _]) = until_action(&mut stream).await;
    host.enqueue(enqueue("s", "And the tests?")).await;
    host.submit("s", vec![result(&open[0], "a cat")]).await;
    completed(&all(&mut stream).await);
    assert_eq!(host.session("s").await.state(), pb::SessionState::Idle);
    let events = host.events("s", "", 0, 1_000).await;
    let story = kinds(&events);
    for kind in ["compaction_completed", "turn_retrying", "messages_applied"] {
        assert!(story.contains(&kind), "{story:?}");
    }
    let said: Vec<_> = messages(&events).into_iter().map(message_text).collect();
    assert_eq!(said[said.len() - 2..], ["And the tests?", "Fine."]);
}
