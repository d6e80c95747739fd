//! Traces: from the caller through turns, on any replica, to the model services that are called.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contextd::{
    pb::{self, event::Payload},
    telemetry::names,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use tonic::{Request, Streaming, metadata::MetadataMap};

use crate::compaction;
use crate::harness::{
    Host, Options, TestDatabase,
    collector::{Collector, text},
    events::{all, completed, requested, results, turn_id, until_action, until_written},
    host::{MODEL, answering, call, until as eventually},
    log::Logged,
    mcp_server::McpServer,
    process::Place,
    requests::{result, tools, turn},
    upstream::{KEY, Reply, Upstream, event, said},
};

use super::{CANARY, echoing, echoing_turn, turn_with_tool, value};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// The model of an [`Upstream`].
const PLAYED: &str = "main/gpt-4o";

/// A request of a caller with a trace context.
fn traced<T>(message: T, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    let traceparent = format!("00-{TRACE}-{CALLER}-{flags}");
    metadata.insert("traceparent", traceparent.parse().unwrap());
    let baggage = format!("user={CANARY}");
    metadata.insert("baggage", baggage.parse().unwrap());
    request
}

async fn execute(
    host: &Host,
    request: Request<pb::ExecuteTurnRequest>,
) -> (MetadataMap, Streaming<pb::ExecuteTurnResponse>) {
    let answer = host.turns().execute_turn(request).await.unwrap();
    let metadata = answer.metadata().clone();
    (metadata, answer.into_inner())
}

/// Waits until a span of this name has ended in the caller's trace. Returns the spans of that trace.
async fn spans(collector: &Collector, until: &str) -> Vec<Span> {
    eventually("the spans were exported", || async { ours(collector).iter().any(|span| span.name == until) }).await;
    ours(collector)
}

fn ours(collector: &Collector) -> Vec<Span> {
    let spans = collector.spans().into_iter();
    spans.filter(|span| hex(&span.trace_id) == TRACE).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == name);
    found.map(text)
}

fn is_database(span: &Span) -> bool {
    attribute(span, "db.system.name").as_deref() == Some("postgresql")
}

/// The names of spans, except database spans.
fn names_of(spans: &[Span]) -> BTreeSet<&str> {
    let spans = spans.iter().filter(|span| !is_database(span));
    spans.map(|span| span.name.as_str()).collect()
}

fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {:?}", names_of(spans));
    found[0]
}

fn header(upstream: &Upstream, request: usize, name: &str) -> Option<String> {
    let requests = upstream.requests();
    let mut headers = requests[request].headers.iter();
    headers.find(|(found, _)| found == name).map(|(_, value)| value.clone())
}

fn settings(collector: &Collector, upstream: &Upstream) -> String {
    format!(
        "[turn]\nlease_ttl = '1s'\npoll_interval = '50ms'\n\
         [telemetry]\nlog_format = 'json'\nlog = 'info,contextd=trace'\n\
         [telemetry.otlp]\nendpoint = '{}'\nmetrics_interval = '200ms'\n\
         [models]\ndefault_model = '{PLAYED}'\n\
         [providers.main]\nkind = 'openai'\nbase_url = '{}'\napi_key = '{KEY}'\n",
        collector.endpoint(),
        upstream.base_url(),
    )
}

/// Row D23
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_replica_was_killed_is_one_trace_to_the_provider() {
    let collector = Collector::start().await;
    let upstream = Upstream::start().await;
    upstream.answer(Reply::events(event(&json!({"content": "We"}))).hold("never"));
    upstream.answer(Reply::events(said(&[CANARY])));
    let database = TestDatabase::new().await;
    let place = Place::new(&settings(&collector, &upstream));
    let first = place.serve_over(&database).await;
    let second = place.serve_over(&database).await;
    let request = traced(turn("s", PLAYED, CANARY), "01");
    let mut stream = first.turns().await.execute_turn(request).await.unwrap().into_inner();
    let seen = until_written(&mut stream, "We").await;
    first.kill_9().await;
    let watch = pb::WatchEventsRequest {
        session_id: "s".to_owned(),
        turn_id: turn_id(&seen),
        follow: true,
        ..Default::default()
    };
    let mut turns = second.turns().await;
    let mut rest = turns.watch_events(watch).await.unwrap().into_inner();
    completed(&all(&mut rest).await);

    let spans = spans(&collector, "invoke_agent").await;
    assert_eq!(
        names_of(&spans),
        ["invoke_agent", "contextd.step", "chat gpt-4o"].into(),
        "what the killed replica was doing is lost with it"
    );
    assert!(spans.iter().any(is_database), "no statement is in it");
    let chat = only(&spans, "chat gpt-4o");
    let agent = only(&spans, "invoke_agent");
    let step = only(&spans, "contextd.step");
    assert_eq!(hex(&chat.parent_span_id), hex(&step.span_id));
    assert_eq!(hex(&step.parent_span_id), hex(&agent.span_id));
    for (span, name, expected) in [
        (agent, "gen_ai.operation.name", "invoke_agent"),
        (agent, "gen_ai.conversation.id", "s"),
        (agent, "contextd.turn.state", "completed"),
        (step, "contextd.attempt", "2"),
        (chat, "gen_ai.operation.name", "chat"),
        (chat, "gen_ai.provider.name", "main"),
        (chat, "gen_ai.request.model", "gpt-4o"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(expected), "{name}");
    }
    for name in ["input_tokens", "output_tokens", "reasoning.output_tokens"] {
        let name = format!("gen_ai.usage.{name}");
        assert!(attribute(chat, &name).is_some(), "{name}");
    }
    let sent = [0, 1].map(|request| header(&upstream, request, "traceparent").unwrap());
    assert!(sent[0].starts_with(&format!("00-{TRACE}-")), "{sent:?}");
    assert_eq!(sent[1], format!("00-{TRACE}-{}-01", hex(&chat.span_id)));
    assert_eq!(header(&upstream, 1, "baggage"), None);

    eventually("metrics came too", || async { collector.counter("contextd.takeover.tried", "taken") == Some(1) }).await;
    let dump = collector.dump();
    let log = second.log_text();
    for secret in [CANARY, KEY] {
        assert!(!dump.contains(secret), "{secret} was exported");
        assert!(!log.contains(secret), "{secret} was logged");
    }
    second.stop().await;
}

/// Row D23
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_goes_on_elsewhere_with_results_stays_in_its_trace() {
    let collector = Collector::start().await;
    let options = || Options {
        otlp: Some(collector.endpoint()),
        ..answering(&[json!([call("look")]), json!([{"text": "Fine."}])])
    };
    let first = Host::with(options()).await;
    let second = first.beside(options()).await;
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("s", MODEL, CANARY) };
    let (metadata, mut stream) = execute(&first, traced(request, "01")).await;
    let (seen, _) = until_action(&mut stream).await;
    second.submit("s", vec![result(&requested(&seen)[0], CANARY)]).await;
    all(&mut stream).await;
    first.replica.drain(Duration::from_secs(1)).await;
    let rpc = "contextd.v1.TurnService/ExecuteTurn";
    eventually("both parts of the turn were exported", || async {
        let spans = ours(&collector);
        let agents = spans.iter().filter(|it| it.name == "invoke_agent");
        agents.count() == 2 && names_of(&spans).contains(rpc)
    })
    .await;
    let spans = ours(&collector);
    let expected = [rpc, "invoke_agent", "contextd.step", "contextd.tool_wait", "chat it"];
    assert_eq!(names_of(&spans), expected.into());
    let rpc = only(&spans, rpc);
    assert_eq!(hex(&rpc.parent_span_id), CALLER);
    assert_eq!(attribute(rpc, "rpc.response.status_code").as_deref(), Some("OK"));
    for agent in spans.iter().filter(|it| it.name == "invoke_agent") {
        assert_eq!(hex(&agent.parent_span_id), hex(&rpc.span_id));
    }
    let told = metadata.get("traceparent").unwrap().to_str().unwrap();
    assert_eq!(told, format!("00-{TRACE}-{}-01", hex(&rpc.span_id)));
    assert!(!collector.dump().contains(CANARY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_is_not_sampled_is_not_recorded_and_a_bad_header_is_ignored() {
    let collector = Collector::start().await;
    let upstream = Upstream::start().await;
    let host = Host::with(Options { otlp: Some(collector.endpoint()), ..upstream.options("openai") }).await;
    for _ in 0..2 {
        upstream.answer(Reply::events(said(&["Fine"])));
    }
    let unsampled = traced(turn("a", PLAYED, "Hello"), "00");
    let (_, mut stream) = execute(&host, unsampled).await;
    completed(&all(&mut stream).await);
    let mut bad = traced(turn("b", PLAYED, "Hello"), "01");
    let malformed = format!("00-{TRACE}-0000000000000000-01");
    let metadata = bad.metadata_mut();
    metadata.insert("traceparent", malformed.parse().unwrap());
    let (_, mut stream) = execute(&host, bad).await;
    completed(&all(&mut stream).await);

    let sent = [0, 1].map(|request| header(&upstream, request, "traceparent").unwrap());
    assert!(sent[0].starts_with(&format!("00-{TRACE}-")) && sent[0].ends_with("-00"));
    assert!(!sent[1].contains(TRACE) && sent[1].ends_with("-01"));
    eventually("the second turn was exported", || async {
        let spans = collector.spans();
        spans.iter().any(|span| span.name == "invoke_agent")
    })
    .await;
    assert_eq!(ours(&collector), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_the_trace_of_a_caller_is_passed_on_as_it_came() {
    let upstream = Upstream::start().await;
    let host = Host::with(upstream.options("openai")).await;
    for _ in 0..2 {
        upstream.answer(Reply::events(said(&["Fine"])));
    }
    let (_, mut stream) = execute(&host, traced(turn("a", PLAYED, "Hello"), "01")).await;
    completed(&all(&mut stream).await);
    host.run(turn("b", PLAYED, "Hello")).await;
    let sent = [0, 1].map(|request| header(&upstream, request, "traceparent"));
    assert_eq!(sent, [Some(format!("00-{TRACE}-{CALLER}-01")), None]);
    assert_eq!(header(&upstream, 0, "baggage"), None);
}

#[tokio::test]
async fn the_line_of_a_call_names_its_trace_and_span() {
    let logged = Logged::default();
    let _guard = logged.begin();
    let host = Host::with(answering(&[json!([{"text": "Fine."}])])).await;
    let (_, mut stream) = execute(&host, traced(turn("s", MODEL, "Hello"), "01")).await;
    let events = all(&mut stream).await;
    assert!(matches!(events.last().unwrap().payload, Some(Payload::TurnCompleted(_))));
    eventually("the call was logged", || async { !logged.lines("call").is_empty() }).await;
    let line = &logged.lines("call")[0];
    assert_eq!(line["fields"]["trace_id"], TRACE);
    assert_eq!(line["fields"]["span_id"], CALLER);
}

/// All spans and their attributes. Attributes with `?` are not on every span of that name. `error.type` can be on any
/// span. Operators build dashboards and queries on these, so a change is user-visible.
const PINNED: [(&str, &[&str]); 9] = [
    ("RPC", &["rpc.system.name", "rpc.method", "rpc.response.status_code"]),
    (
        "invoke_agent",
        &[
            "gen_ai.operation.name",
            "gen_ai.conversation.id",
            "contextd.turn.id",
            "?contextd.turn.state",
            "?contextd.reason",
        ],
    ),
    ("contextd.step", &["contextd.step", "contextd.attempt"]),
    (
        "chat MODEL",
        &[
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "contextd.purpose",
            "?gen_ai.response.model",
            "?gen_ai.response.id",
            "?gen_ai.response.finish_reasons",
            "?gen_ai.response.time_to_first_chunk",
            "?gen_ai.usage.input_tokens",
            "?gen_ai.usage.output_tokens",
            "?gen_ai.usage.reasoning.output_tokens",
            "?gen_ai.usage.cache_read.input_tokens",
            "?gen_ai.usage.cache_write.input_tokens",
        ],
    ),
    ("execute_tool TOOL", &["gen_ai.operation.name", "gen_ai.tool.name", "contextd.mcp.server", "contextd.result"]),
    ("contextd.tool_wait", &[]),
    (
        "contextd.compaction",
        &[
            "gen_ai.conversation.id",
            "contextd.result",
            "contextd.compaction.tokens_before",
            "?contextd.compaction.tokens_after",
        ],
    ),
    // A replica that finds a queued message starts this span; no call causes it.
    ("contextd.queue.start", &[]),
    ("DATABASE", &["db.system.name", "db.operation.name"]),
];

/// The name of a span without its variable part.
fn general(span: &Span) -> &str {
    if attribute(span, "rpc.system.name").is_some() {
        "RPC"
    } else if is_database(span) {
        "DATABASE"
    } else if span.name.starts_with("chat ") {
        "chat MODEL"
    } else if span.name.starts_with("execute_tool ") {
        "execute_tool TOOL"
    } else {
        &span.name
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_attributes_of_spans_and_their_schema_are_a_pinned_list() {
    let collector = Collector::start().await;
    let server = McpServer::start().await;
    let answers = [json!([call("look")]), json!([{"text": "Done."}])];
    let options = Options {
        otlp: Some(collector.endpoint()),
        mcp: vec![("played".to_owned(), server.config(Duration::from_secs(30)))],
        ..compaction::answering(&answers, &compaction::in_short())
    };
    let host = Host::with(options.script("echoing", echoing())).await;
    turn_with_tool(&host, "a").await;
    host.run(echoing_turn("m")).await;
    compaction::session(&host, 20_000, pb::CompactionPolicy::default(), &[3_000; 6]).await;
    let made = compaction::try_compact(&host, compaction::request("c1")).await;
    assert_eq!(made.unwrap().state(), pb::CompactionState::Applied);

    let pinned: BTreeMap<&str, &[&str]> = PINNED.into();
    let queue_start = names::span::QUEUE_START;
    let all: BTreeSet<&str> = pinned.keys().copied().collect();
    eventually("a span of each name was exported", || async {
        let spans = collector.spans();
        let mut seen: BTreeSet<&str> = spans.iter().map(general).collect();
        seen.insert(queue_start);
        assert!(seen.is_subset(&all), "{seen:?}");
        seen == all
    })
    .await;
    for span in collector.spans() {
        let has: BTreeSet<&str> = span.attributes.iter().map(|it| it.key.as_str()).collect();
        let may = pinned[general(&span)].iter();
        let may: BTreeSet<&str> = may.map(|name| name.trim_start_matches('?')).collect();
        let must = pinned[general(&span)].iter().filter(|name| !name.starts_with('?'));
        for name in must {
            assert!(has.contains(name), "{} has no {name}: {has:?}", span.name);
        }
        for name in has {
            let known = may.contains(name) || name == "error.type";
            assert!(known, "{} has {name}", span.name);
        }
    }
    let schema = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev";
    let scope = ("contextd".to_owned(), schema.to_owned());
    assert_eq!(collector.scopes(), [scope].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_mcp_server_is_a_span_whose_trace_the_server_is_told() {
    let collector = Collector::start().await;
    let server = McpServer::start().await;
    server.add("traces").await;
    server.add("leaks").await;
    let options = Options {
        otlp: Some(collector.endpoint()),
        mcp: vec![("played".to_owned(), server.config(Duration::from_secs(30)))],
        ..answering(&[json!([call("traces"), call("leaks")]), json!([{"text": "Done."}])])
    };
    let host = Host::with(options).await;
    let request = pb::ExecuteTurnRequest { tools: echoing_turn("s").tools, ..turn("s", MODEL, "Hello") };
    let (_, mut stream) = execute(&host, traced(request, "01")).await;
    let events = all(&mut stream).await;
    let told = format!("{:?}", results(&events));
    let spans = spans(&collector, "execute_tool leaks").await;
    let called = only(&spans, "execute_tool traces");
    let expected = format!("00-{TRACE}-{}-01", hex(&called.span_id));
    assert!(told.contains(&expected), "{expected}: {told}");
    assert!(!called.parent_span_id.is_empty());
    assert_eq!(attribute(called, "contextd.result").unwrap(), "success");
    let refused = only(&spans, "execute_tool leaks");
    assert_eq!(attribute(refused, "contextd.result").unwrap(), "refused");
    assert_eq!(attribute(refused, "error.type").unwrap(), "refused");
    let scrape = host.replica.scrape().await;
    let count = "gen_ai_execute_tool_duration_seconds_count";
    assert_eq!(value(&scrape, count, &["played", "refused"]), 1.0);
}
