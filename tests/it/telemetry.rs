//! The metrics and spans of contextd, as scraped by Prometheus and as received by a collector.

mod traces;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use contextd::{
    config::{self, AuthConfig, RetentionConfig},
    pb,
    telemetry::{export::prometheus_names, instruments},
};
use prost::Message as _;
use serde_json::json;

use crate::{
    compaction,
    harness::{
        Host, Options, Replica, as_worker,
        collector::Collector,
        events::{all, requested, until, until_action, until_written},
        host::{MODEL, answering, call, script, until as eventually},
        mcp_server::McpServer,
        requests::{enqueue, result, tools, turn},
        transcripts::one_turn,
    },
};

/// A value chosen by a caller that must not appear in telemetry.
const CANARY: &str = "canary-7f3a";

/// The sum of the series with this name and all of these labels; 0 if there is none.
fn value(scrape: &str, name: &str, labels: &[&str]) -> f64 {
    let series = scrape.lines().filter(|line| {
        let named = line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '));
        named && labels.iter().all(|label| line.contains(label))
    });
    series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn families(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|rest| rest.split(' ').next().unwrap().to_owned()).filter(|name| name != "target_info").collect()
}

/// The rows of the table in docs/metrics.md: the name, then the kind, the unit and the name in Prometheus.
fn documented() -> BTreeMap<String, (String, String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(cell).collect();
        let [_, name, prometheus, kind, unit, ..] = cells.as_slice() else {
            panic!("{row}");
        };
        let rest = (prometheus.clone(), kind.clone(), unit.clone());
        (name.clone(), rest)
    })
    .collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let kind = |kind| match kind {
        instruments::Kind::Counter => "counter",
        instruments::Kind::UpDownCounter => "up-down counter",
        instruments::Kind::Gauge => "gauge",
        instruments::Kind::Histogram(_) => "histogram",
    };
    let expected = prometheus_names().into_iter().map(|(prometheus, it)| {
        let rest = (prometheus, kind(it.kind).to_owned(), it.unit.to_owned());
        (it.name.to_owned(), rest)
    });
    assert_eq!(documented(), expected.collect());
}

/// A replica that produces every metric.
async fn busy_host(server: &McpServer) -> Host {
    let error = json!({"kind": "overloaded", "message": "Too many.", "status": 503, "times": 1});
    let failing = json!({"steps": [{"say": [{"error": error}, {"text": "At last."}]}]});
    let options = Options {
        mcp: vec![("played".to_owned(), server.config(Duration::from_secs(30)))],
        retention: RetentionConfig { request_ids: Duration::ZERO, ..Options::default().retention },
        call_attempts: 2,
        ..compaction::answering(&[json!([call("look")]), json!([{"text": "Done."}])], &compaction::in_short())
    };
    let options = options.script("failing", failing.to_string());
    Host::with(options.script("echoing", echoing())).await
}

/// A model that calls the tool `echo` of an MCP server.
fn echoing() -> String {
    let echo = json!([call("echo")]);
    script(&[echo, json!([{"text": "Done."}])])
}

/// A turn with that model and the tools of the MCP server `played`.
fn echoing_turn(session: &str) -> pb::ExecuteTurnRequest {
    let played = pb::McpServerTools { server: "played".to_owned(), ..pb::McpServerTools::default() };
    pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { mcp_servers: vec![played], ..pb::ToolSet::default() }),
        ..turn(session, "scripted/echoing", "Hello")
    }
}

async fn turn_with_tool(host: &Host, session: &str) -> Vec<pb::Event> {
    let mut stream = host
        .execute(pb::ExecuteTurnRequest {
            tools: tools(&["look"]),
            request_id: format!("{session}-{CANARY}"),
            ..turn(session, MODEL, CANARY)
        })
        .await;
    let (first, _) = until_action(&mut stream).await;
    let results = requested(&first).iter().map(|call| result(call, CANARY)).collect();
    host.submit(session, results).await;
    all(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_metric_is_scraped_after_real_work_and_no_other_is() {
    let server = McpServer::start().await;
    let host = busy_host(&server).await;
    turn_with_tool(&host, "a").await;
    host.run(echoing_turn("m")).await;
    host.enqueue(pb::EnqueueMessageRequest { on_idle: pb::IdleAction::StartTurn.into(), ..enqueue("a", "More") }).await;
    eventually("the queued turn ran", || async {
        let scrape = host.replica.scrape().await;
        value(&scrape, "contextd_turn_started_total", &["queue"]) == 1.0
    })
    .await;
    host.run(turn("b", "scripted/failing", "Hello")).await;
    host.watch("b", "", 0).await.message().await.unwrap();
    compaction::session(&host, 20_000, pb::CompactionPolicy::default(), &[3_000; 6]).await;
    let made = compaction::try_compact(&host, compaction::request("c1")).await;
    assert_eq!(made.unwrap().state(), pb::CompactionState::Applied);
    host.create(pb::Session { session_id: "p".to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }).await;
    for n in 0..5 {
        host.append("p", one_turn(&format!("p{n}"), 30_000)).await;
    }
    let prune =
        pb::PruneToolOutputsRequest { session_id: "p".to_owned(), request_id: "p1".to_owned(), ..Default::default() };
    host.contexts().prune_tool_outputs(prune).await.unwrap();
    host.replica.engine.sessions.retain().await.unwrap();
    let refusing = Options { auth: AuthConfig { required: true, ..AuthConfig::default() }, ..Options::default() };
    let refusing = host.beside(refusing).await;
    assert!(refusing.try_execute(turn("c", MODEL, "Hi")).await.is_err());

    eventually("no turn runs", || async { value(&host.replica.scrape().await, "contextd_turn_running", &[]) == 0.0 })
        .await;
    let scrape = host.replica.scrape().await;
    let refused = refusing.replica.scrape().await;
    let scraped: BTreeSet<_> = families(&scrape).union(&families(&refused)).cloned().collect();
    let expected: BTreeSet<_> = prometheus_names().into_keys().collect();
    assert_eq!(scraped, expected);

    let check = |name: &str, labels: &[&str], expected: f64| {
        assert_eq!(value(&scrape, name, labels), expected, "{name} {labels:?}");
    };
    let calls = "rpc_server_call_duration_seconds_count";
    let execute = r#"rpc_method="contextd.v1.TurnService/ExecuteTurn""#;
    check(calls, &[execute, r#"rpc_response_status_code="OK""#], 3.0);
    check("contextd_rpc_active", &[execute], 0.0);
    check("contextd_turn_started_total", &["execute"], 3.0);
    check("contextd_lease_held", &[], 0.0);
    check("contextd_ready", &[], 1.0);
    check("contextd_turn_time_to_first_token_seconds_count", &[], 3.0);
    let tool = "gen_ai_execute_tool_duration_seconds_count";
    let labels = [r#"contextd_mcp_server="played""#, r#"contextd_result="success""#];
    check(tool, &labels, 1.0);
    check("contextd_model_retries_total", &["overloaded"], 1.0);
    let model = "gen_ai_client_operation_duration_seconds_count";
    check(model, &[r#"gen_ai_request_model="failing""#], 2.0);
    check(model, &[r#"error_type="overloaded""#], 1.0);
    check(model, &[r#"contextd_purpose="compaction""#], 1.0);
    check("contextd_compaction_ended_total", &["applied"], 1.0);
    check("contextd_compaction_tokens_count", &["saved"], 1.0);
    check("contextd_prune_applied_total", &[], 1.0);
    check("contextd_queue_depth", &[], 0.0);
    let removed = "contextd_retention_removed_total";
    assert!(value(&scrape, removed, &["request_ids"]) >= 2.0);
    assert!(value(&scrape, "contextd_stream_replayed_bytes_total", &[]) > 0.0);
    let rejected = value(&refused, "contextd_rpc_rejected_total", &["credential_missing"]);
    assert_eq!(rejected, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_begin_at_zero_and_a_sweep_counts_what_it_has_removed_so_far() {
    let retention = RetentionConfig { request_ids: Duration::ZERO, batch_rows: 1, ..Options::default().retention };
    let host = Host::with(Options { retention, ..answering(&[json!([{"text": "Done."}])]) }).await;
    let counter = async |name: &str, label: &str| {
        let scrape = host.replica.scrape().await;
        let is_it = |line: &&str| line.starts_with(name) && line.contains(label);
        let line = scrape.lines().find(is_it);
        let line = line.unwrap_or_else(|| panic!("no {name} of {label}: {scrape}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let removed = "contextd_retention_removed_total";
    for (name, label) in [
        ("contextd_turn_ended_total", "\"provider_auth\""),
        ("contextd_turn_ended_total", "\"deadline\""),
        ("contextd_turn_ended_total", "\"requested\""),
        (removed, "\"request_ids\""),
        (removed, "\"blobs\""),
    ] {
        assert_eq!(counter(name, label).await, 0.0, "{name} {label}");
    }
    for id in ["a", "b", "c"] {
        let create = pb::CreateSessionRequest {
            session: Some(pb::Session { session_id: id.to_owned(), model: MODEL.to_owned(), ..pb::Session::default() }),
            request_id: id.to_owned(),
        };
        host.sessions().create_session(create).await.unwrap();
    }
    // The second batch fails, as in an outage of the database.
    let fails = "create function stop() returns trigger language plpgsql as
                   $$ begin if (select count(*) from idempotency) < 3 then raise 'stop'; end if; return old; end $$;
                 create trigger stop before delete on idempotency for each row execute function stop()";
    let client = host.database.client().await;
    client.batch_execute(fails).await.unwrap();
    as_worker(host.replica.engine.sessions.retain()).await.unwrap_err();
    assert_eq!(counter(removed, "\"request_ids\"").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_turns_and_takeovers_are_counted_where_they_happen() {
    let stalling = answering(&[json!([{"text": "We"}, {"stall": true}])]);
    let host = Host::with(Options { lease: Duration::from_secs(1), ..stalling }).await;
    let mut stream = host.execute(turn("s", MODEL, "Hello")).await;
    let events = until_written(&mut stream, "We").await;
    let running = value(&host.replica.scrape().await, "contextd_turn_running", &[]);
    assert_eq!(running, 1.0);
    let other =
        host.beside(Options { lease: Duration::from_secs(1), ..answering(&[json!([{"text": "Here."}])]) }).await;
    host.replica.stop_workers();
    eventually("the turn was taken over and ended", || async {
        let scrape = other.replica.scrape().await;
        value(&scrape, "contextd_turn_ended_total", &["completed", "stop"]) == 1.0
    })
    .await;
    let scrape = other.replica.scrape().await;
    assert_eq!(value(&scrape, "contextd_takeover_tried_total", &["taken"]), 1.0);
    assert_eq!(value(&scrape, "contextd_turn_started_total", &[]), 0.0);
    drop((stream, events));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_metric_shows_what_callers_choose_and_spans_only_the_session() {
    let collector = Collector::start().await;
    let options =
        Options { otlp: Some(collector.endpoint()), ..answering(&[json!([call("look")]), json!([{"text": CANARY}])]) };
    let host = Host::with(options).await;
    let session = format!("session-{CANARY}");
    turn_with_tool(&host, &session).await;
    let unknown = format!("scripted/{CANARY}");
    assert!(host.try_execute(turn("x", &unknown, "Hi")).await.is_err());
    let path = format!("contextd.v1.TurnService/{CANARY}");
    let answer = crate::harness::raw::call(host.replica.channel().await, &path, Vec::new()).await;
    assert!(answer.is_err());
    let scrape = host.replica.scrape().await;
    assert_eq!(value(&scrape, "rpc_server_call_duration_seconds_count", &["_OTHER"]), 1.0);
    assert!(!scrape.contains(CANARY), "{scrape}");
    eventually("the metrics were pushed", || async { collector.counter("contextd.turn.ended", "stop") == Some(1) })
        .await;
    let metrics = collector.metrics_dump();
    assert!(!metrics.contains(CANARY), "{metrics}");

    // Spans are exported in batches, or after some seconds.
    eventually("the spans of both calls were exported", || async {
        let spans = collector.spans();
        let named = |name: &str| spans.iter().filter(|span| span.name == name).count();
        named("_OTHER") == 1 && named("invoke_agent") == 2 && named("contextd.v1.TurnService/ExecuteTurn") == 2
    })
    .await;
    for span in collector.spans() {
        let mut shown = span.clone();
        shown.attributes.retain(|it| it.key != "gen_ai.conversation.id");
        let bytes = shown.encode_to_vec();
        assert!(!String::from_utf8_lossy(&bytes).contains(CANARY), "{span:?}");
    }
}

#[test]
fn the_standard_variable_names_the_collector_unless_it_speaks_something_else() {
    let endpoint = |variables: &[(&str, &str)]| {
        let sources = config::Sources {
            environment: config::Environment::new(variables.iter().copied()),
            ..config::Sources::default()
        };
        config::load(&sources).unwrap().config.telemetry.otlp.endpoint
    };
    let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4318");
    let own = ("CONTEXTD_OTLP_ENDPOINT", "http://own:4318");
    let protocol = |protocol| ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    assert_eq!(endpoint(&[]), None);
    assert_eq!(endpoint(&[standard]).as_deref(), Some(standard.1));
    assert_eq!(endpoint(&[standard, own]).as_deref(), Some(own.1));
    assert_eq!(endpoint(&[standard, protocol("http/protobuf")]).as_deref(), Some(standard.1));
    assert_eq!(endpoint(&[standard, protocol("grpc")]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_pushed_to_a_collector() {
    let collector = Collector::start().await;
    let options = Options { otlp: Some(collector.endpoint()), ..answering(&[json!([{"text": "Hello."}])]) };
    let host = Host::with(options).await;
    host.run(turn("s", MODEL, "Hello")).await;
    eventually("the metrics were pushed", || async {
        collector.counter("contextd.turn.ended", "completed") == Some(1)
    })
    .await;
    for name in [
        "rpc.server.call.duration",
        "gen_ai.client.operation.duration",
        "db.client.operation.duration",
        "db.client.connection.count",
    ] {
        eventually(name, || async {
            let names = collector.metric_names();
            names.iter().any(|found| found == name)
        })
        .await;
    }
    let resources = collector.resources();
    let named = ("service.name".to_owned(), "contextd".to_owned());
    assert!(resources.contains(&named), "{resources:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_no_turn() {
    let (_database, replica) = Replica::alone(Options {
        otlp: Some("http://127.0.0.1:1".to_owned()),
        ..answering(&[json!([{"text": "Hello."}])])
    })
    .await;
    let mut turns = replica.turns().await;
    for n in 0..3 {
        let request = turn(&format!("s{n}"), MODEL, "Hello");
        let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
        until(&mut stream, |payload| matches!(payload, pb::event::Payload::TurnCompleted(_))).await;
    }
}
