//! Tools of MCP servers, which contextd calls, against a real server over HTTP.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use contextd::{
    config::McpConfig,
    pb::{self, AnswerStatus, CompletionReason, ToolExecutor, ToolOutcome, event::Payload},
};
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Host, Options,
    events::{all, completed, message_text, messages, requested, results, turn_id, until},
    host::{MODEL, answering, call, refusal, until as eventually},
    mcp_server::{CLIENT_SECRET, Habits, LostSession, McpServer, Pages, Speaks, TOKEN},
    process::Place,
    requests::{approve, one_by_one, result, turn},
};

/// The text that the model receives for a call whose result was lost.
const UNKNOWN: &str = "outcome of the call is unknown";

/// Longer than any call that completes.
const AMPLE: Duration = Duration::from_secs(60);

/// All tools of the server that is configured as `played`.
fn played() -> pb::McpServerTools {
    pb::McpServerTools { server: "played".to_owned(), ..pb::McpServerTools::default() }
}

fn from(server: pb::McpServerTools) -> Option<pb::ToolSet> {
    Some(pb::ToolSet { mcp_servers: vec![server], ..pb::ToolSet::default() })
}

fn asks(server: pb::McpServerTools) -> pb::ExecuteTurnRequest {
    pb::ExecuteTurnRequest { tools: from(server), ..turn("s", MODEL, "Hello") }
}

fn echo(text: &str) -> Value {
    json!({"tool_call": {"name": "echo", "arguments": {"text": text}}})
}

async fn host(server: &McpServer, call_timeout: Duration, answers: &[Value]) -> Host {
    let options = Options { mcp: vec![("played".to_owned(), server.config(call_timeout))], ..answering(answers) };
    Host::with(options).await
}

/// The outcome and the text of the only result.
fn outcome(events: &[pb::Event]) -> (ToolOutcome, String) {
    let [result] = results(events)[..] else { panic!("not one result") };
    let texts = result.parts.iter().map(|part| match &part.content {
        Some(pb::part::Content::Text(text)) => text.clone(),
        other => panic!("no text: {other:?}"),
    });
    (result.outcome(), texts.collect())
}

async fn begun(server: &McpServer, tool: &str) {
    eventually("the call to begin", || async { server.begun().iter().any(|begun| begun == tool) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contextd_calls_a_tool_of_a_configured_mcp_server_and_the_model_reads_the_result() {
    let server = McpServer::start().await;
    let answers = [json!([echo("hi there")]), json!([{"text": "{{result:echo}}"}])];
    let host = host(&server, AMPLE, &answers).await;
    let events = host.run(asks(played())).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    let executors: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(Payload::ToolCallRequested(pending)) => Some(pending.executor()),
            _ => None,
        })
        .collect();
    assert_eq!(executors, [ToolExecutor::Mcp]);
    assert_eq!(outcome(&events), (ToolOutcome::Success, "hi there".into()));
    assert_eq!(message_text(messages(&events).last().unwrap()), "hi there");
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    let offered: Vec<_> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["echo", "fails", "fs_read", "meets", "stalls"]);
    assert_eq!(prompt.tools[0].description, "does echo");
    assert_eq!(server.begun(), ["echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_step_run_at_once_on_an_mcp_server() {
    let server = McpServer::start().await;
    let answers = [json!([call("meets"), call("meets")]), json!([{"text": "Done."}])];
    let host = host(&server, AMPLE, &answers).await;
    // Each of the two calls ends only while the other one runs.
    let events = host.run(asks(played())).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    assert_eq!(server.begun(), ["meets", "meets"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_mcp_server_run_one_by_one_where_the_policy_says_so() {
    let server = McpServer::start().await;
    let answers = [json!([echo("first"), call("fails"), echo("last")]), json!([{"text": "Done."}])];
    let host = host(&server, AMPLE, &answers).await;
    let request = pb::ExecuteTurnRequest { session: one_by_one(), ..asks(played()) };
    let events = host.run(request).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    assert_eq!(server.begun(), ["echo", "fails", "echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_an_mcp_server_that_fails_is_an_error_that_the_model_reads() {
    let server = McpServer::start().await;
    let answers = [json!([call("fails")]), json!([{"text": "{{result:fails}}"}])];
    let host = host(&server, AMPLE, &answers).await;
    let events = host.run(asks(played())).await;
    assert_eq!(outcome(&events), (ToolOutcome::Error, "no such city".into()));
    assert_eq!(message_text(messages(&events).last().unwrap()), "no such city");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_stalls_ends_at_its_deadline_as_one_whose_outcome_is_unknown() {
    let server = McpServer::start().await;
    let answers = [json!([call("stalls")]), json!([{"text": "Done."}])];
    let host = host(&server, Duration::from_millis(300), &answers).await;
    let events = host.run(asks(played())).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    let (outcome, text) = outcome(&events);
    assert_ne!(outcome, ToolOutcome::Success);
    assert!(text.contains(UNKNOWN), "{text}");
    assert_eq!(server.begun(), ["stalls"]);
    eventually("the server to hear of it", || async { server.cancelled() == ["stalls"] }).await;
}

/// Row F46
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_mid_call_leaves_the_outcome_unknown_and_the_turn_goes_on() {
    let server = McpServer::start().await;
    let answers = [json!([call("stalls")]), json!([{"text": "Done."}])];
    let host = host(&server, Duration::from_secs(3), &answers).await;
    let mut stream = host.execute(asks(played())).await;
    begun(&server, "stalls").await;
    server.die();
    let events = all(&mut stream).await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
    let (outcome, text) = outcome(&events);
    assert_ne!(outcome, ToolOutcome::Success);
    assert!(text.contains(UNKNOWN), "{text}");
    assert_eq!(server.begun(), ["stalls"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_over_the_tools_limits_is_cut_and_kept_whole() {
    let server = McpServer::start().await;
    let answers = [json!([call("fs_read")]), json!([{"text": "Done."}])];
    let host = host(&server, AMPLE, &answers).await;
    let limits = pb::ToolOutputLimits { max_lines: 3, ..pb::ToolOutputLimits::default() };
    let events = host.run(asks(pb::McpServerTools { output_limits: Some(limits), ..played() })).await;
    let [result] = results(&events)[..] else { panic!("not one result") };
    let truncation = result.truncation.as_ref().unwrap();
    assert_eq!(truncation.original_chars, 50_000);
    assert!(truncation.kept_chars < 100);
    let (_, text) = outcome(&events);
    assert!(text.starts_with("line\nline\nline"), "{text}");
}

/// Row I11
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_servers_bound_is_not_read() {
    let server = McpServer::start().await;
    let options = Options {
        mcp: vec![(
            "played".to_owned(),
            McpConfig { max_result_bytes: 20_000, ..server.config(Duration::from_secs(5)) },
        )],
        ..answering(&[json!([call("fs_read")]), json!([{"text": "Done."}])])
    };
    let host = Host::with(options).await;
    let events = host.run(asks(played())).await;
    let (outcome, text) = outcome(&events);
    assert_ne!(outcome, ToolOutcome::Success);
    assert!(text.contains(UNKNOWN), "{text}");
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_configured_is_refused_and_so_is_a_tool_that_it_does_not_list() {
    let server = McpServer::start().await;
    let host = host(&server, AMPLE, &[json!([{"text": "Done."}])]).await;
    let refused = async |tools: pb::ToolSet| {
        let request = pb::ExecuteTurnRequest { tools: Some(tools), ..turn("s", MODEL, "Hello") };
        let status = host.try_execute(request).await.unwrap_err();
        let (code, reason, _) = refusal(&status, "server");
        (code, reason)
    };
    let unknown = (Code::NotFound, "MCP_SERVER_NOT_FOUND".to_owned());
    let unusable = (Code::FailedPrecondition, "MCP_TOOLS_UNUSABLE".to_owned());
    let other = pb::McpServerTools { server: "http://127.0.0.1:1/mcp".to_owned(), ..played() };
    assert_eq!(refused(from(other).unwrap()).await, unknown);
    let missing = pb::McpServerTools { tools: vec!["fly".to_owned()], ..played() };
    assert_eq!(refused(from(missing).unwrap()).await, unusable);
    let twice = pb::ToolSet { mcp_servers: vec![played(), played()], ..pb::ToolSet::default() };
    assert_eq!(refused(twice).await, unusable);
    let single = |server: &str| pb::ToolSet {
        host_tools: vec![pb::Tool {
            name: "echo".to_owned(),
            mcp: Some(pb::McpTool { server: server.to_owned(), tool: String::new() }),
            ..pb::Tool::default()
        }],
        ..pb::ToolSet::default()
    };
    assert_eq!(refused(single("other")).await, unknown);
    assert_eq!(server.begun(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_refuses_the_tool_set_and_nothing_else() {
    let server = McpServer::start().await;
    let host = host(&server, AMPLE, &[json!([{"text": "Done."}])]).await;
    server.die();
    let status = host.try_execute(asks(played())).await.unwrap_err();
    let expected = (Code::Unavailable, "MCP_SERVER_FAILED".to_owned(), "played".to_owned());
    assert_eq!(refusal(&status, "server"), expected);
    assert!(!status.message().contains("127.0.0.1"), "{status}");
    assert!(!status.message().contains(TOKEN), "{status}");
    let events = host.ask("s", "Hello").await;
    assert_eq!(completed(&events).reason(), CompletionReason::Stop);
}

/// Row D18
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_cancels_its_calls_at_the_mcp_server() {
    let server = McpServer::start().await;
    let host = host(&server, AMPLE, &[json!([call("stalls")])]).await;
    let mut stream = host.execute(asks(played())).await;
    begun(&server, "stalls").await;
    host.cancel("s", "").await;
    all(&mut stream).await;
    eventually("the call to be cancelled", || async { server.cancelled() == ["stalls"] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_an_mcp_server_begins_once_a_cancel_is_committed() {
    let server = McpServer::start().await;
    let answers = [json!([{"text": "Hm."}, {"wait_for": "go"}, echo("hi")])];
    let options =
        Options { mcp: vec![("played".to_owned(), server.config(AMPLE))], poll: AMPLE, ..answering(&answers) };
    let host = Host::with(options).await;
    let mut stream = host.execute(asks(played())).await;
    crate::harness::events::until_written(&mut stream, "Hm.").await;
    // As committed by another replica whose notification is delayed.
    let cancel = "update session_run set version = version + 1, cancel = 1, cancel_cause = 1, cancel_reason = '' where session_id = 's'";
    let client = host.database.client().await;
    assert_eq!(client.execute(cancel, &[]).await.unwrap(), 1);
    host.release("go");
    let events = all(&mut stream).await;
    assert!(matches!(&events.last().unwrap().payload, Some(Payload::TurnCancelled(_))), "{events:?}");
    host.at_rest().await;
    assert_eq!(server.begun(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_mcp_server_that_needs_approval_begins_once_it_is_approved() {
    let server = McpServer::start().await;
    let answers = [json!([echo("hi")]), json!([{"text": "{{result:echo}}"}])];
    let host = host(&server, AMPLE, &answers).await;
    let mut stream = host.execute(asks(pb::McpServerTools { requires_approval: true, ..played() })).await;
    let events = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let pending = host.turn("s", &turn_id(&events)).await.pending_approvals;
    let id = &pending[0].call.as_ref().unwrap().call_id;
    assert_eq!(server.begun(), [] as [&str; 0]);
    host.decide("s", vec![approve(id)]).await;
    let events = all(&mut stream).await;
    assert_eq!(outcome(&events), (ToolOutcome::Success, "hi".into()));
    assert_eq!(server.begun(), ["echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_the_host_submits_closes_the_call_and_the_servers_is_dropped() {
    let server = McpServer::start().await;
    let answers = [json!([call("stalls")]), json!([{"text": "{{result:stalls}}"}])];
    let host = host(&server, AMPLE, &answers).await;
    let mut stream = host.execute(asks(played())).await;
    let events = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
    let turn = host.turn("s", &turn_id(&events)).await;
    assert_eq!(turn.pending_calls[0].executor(), ToolExecutor::Mcp);
    let calls = requested(&events);
    begun(&server, "stalls").await;
    let statuses = host.submit("s", vec![result(&calls[0], "by hand")]).await;
    assert_eq!(statuses, [AnswerStatus::Accepted]);
    let events = all(&mut stream).await;
    assert_eq!(message_text(messages(&events).last().unwrap()), "by hand");
    eventually("the call to be cancelled", || async { server.cancelled() == ["stalls"] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_a_server_is_asked_for_once_until_it_announces_a_change() {
    for speaks in [Speaks::Handshake, Speaks::Stateless] {
        let server = McpServer::with(Habits { speaks, ..Habits::default() }).await;
        let host = host(&server, AMPLE, &[json!([{"text": "Done."}])]).await;
        for _ in 0..3 {
            host.run(asks(played())).await;
        }
        assert_eq!(server.lists(), 1, "{speaks:?}");
        server.add("another").await;
        eventually("the new tool to be offered", || async {
            host.run(asks(played())).await;
            let prompt = host.replica.scripted.prompts().pop().unwrap();
            prompt.tools.iter().any(|tool| tool.name == "another")
        })
        .await;
        assert_eq!(server.lists(), 2, "{speaks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_read_has_the_listed_tools_and_can_be_stored_again() {
    let server = McpServer::start().await;
    let host = host(&server, AMPLE, &[json!([{"text": "Done."}])]).await;
    let selection = pb::McpServerTools { tools: vec!["fs.read".to_owned()], prefix: "disk_".to_owned(), ..played() };
    let request = pb::ExecuteTurnRequest {
        session: Some(pb::Session { tools: from(selection), ..pb::Session::default() }),
        ..turn("s", MODEL, "Hello")
    };
    host.run(request).await;
    let session = host.session("s").await;
    let tools = session.tools.clone().unwrap();
    assert_eq!(tools.mcp_servers, []);
    let [tool] = &tools.host_tools[..] else { panic!("not one tool") };
    assert_eq!(tool.name, "disk_fs_read");
    let mcp = tool.mcp.as_ref().unwrap();
    assert_eq!((mcp.server.as_str(), mcp.tool.as_str()), ("played", "fs.read"));
    let request = pb::UpdateSessionRequest {
        session: Some(pb::Session { session_id: "s".to_owned(), tools: Some(tools), ..pb::Session::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["tools".to_owned()] }),
        ..pb::UpdateSessionRequest::default()
    };
    let updated = host.sessions().update_session(request).await.unwrap();
    let updated = updated.into_inner().session.unwrap();
    assert_eq!((updated.etag, updated.tools), (session.etag, session.tools));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_process_was_killed_is_not_begun_again() {
    let server = McpServer::start().await;
    let settings = format!(
        "[turn]\nlease_ttl = \"3s\"\npoll_interval = \"50ms\"\n[mcp.played]\nurl = \"{}\"\ntoken = \"{TOKEN}\"\ncall_timeout = \"5s\"\n",
        server.url()
    );
    let answers = json!({"steps": [
        {"when": {"call": 0}, "say": [call("stalls")]},
        {"when": {"call": 1}, "say": [{"text": "{{result:stalls}}"}]},
    ]});
    let place = Place::new(&settings).script("it", &answers);
    let served = place.serve().await;
    let stream = served.turns().await.execute_turn(asks(played())).await;
    let _stream = stream.unwrap().into_inner();
    begun(&server, "stalls").await;
    served.kill_9().await;
    let served = place.serve().await;
    let mut turns = served.turns().await;
    let request =
        pb::WatchEventsRequest { session_id: "s".to_owned(), follow: true, ..pb::WatchEventsRequest::default() };
    let mut watched = turns.watch_events(request).await.unwrap().into_inner();
    let events = until(&mut watched, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let (outcome, text) = outcome(&events);
    assert_ne!(outcome, ToolOutcome::Success);
    assert!(text.contains(UNKNOWN), "{text}");
    assert_eq!(server.begun(), ["stalls"]);
    served.stop().await;
}

/// How many more times reading the open calls of a session fails.
static OUTAGES: AtomicUsize = AtomicUsize::new(3);

/// Makes the statement that reads open calls fail, as in a short outage of the database.
fn without_open_calls(sql: &'static str) -> &'static str {
    let one_less = |left: usize| left.checked_sub(1);
    let reads = sql.starts_with("-- store::tool_call::open");
    if reads && OUTAGES.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
        return "select pg_cancel_backend(pg_backend_pid()), pg_sleep(60) where $1::text <> $2::text";
    }
    sql
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_begins_although_the_database_could_not_be_read_at_first() {
    let server = McpServer::start().await;
    let answers = [json!([echo("hi")]), json!([{"text": "{{result:echo}}"}])];
    let host = Host::with(Options {
        mcp: vec![("played".to_owned(), server.config(AMPLE))],
        replace: Some(without_open_calls),
        ..answering(&answers)
    })
    .await;
    // The stream of a reader may fail too.
    drop(host.execute(asks(played())).await);
    eventually("the turn to end", || async {
        let messages = host.messages("s").await;
        messages.len() == 4 && message_text(&messages[3]) == "hi"
    })
    .await;
    assert_eq!(server.begun(), ["echo"]);
    assert_eq!(OUTAGES.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_cannot_be_sent_end_the_call_with_the_reason() {
    let server = McpServer::start().await;
    let written = r#"{"text": 1e999}"#;
    let answers = [json!([{"tool_call": {"name": "echo", "raw_arguments": written}}]), json!([{"text": "Done."}])];
    let host = host(&server, AMPLE, &answers).await;
    let events = host.run(asks(played())).await;
    let (outcome, text) = outcome(&events);
    assert_eq!(outcome, ToolOutcome::Error);
    assert!(text.contains("cannot be sent: number out of range"), "{text}");
    assert_eq!(server.begun(), [] as [&str; 0]);
}

/// Calls `echo` in two turns and restarts the server between them.
async fn restarted_between_calls(habits: Habits) -> (McpServer, Vec<(ToolOutcome, String)>) {
    let server = McpServer::with(habits).await;
    let answers = [json!([echo("hi")]), json!([{"text": "Done."}])];
    let host = host(&server, Duration::from_secs(10), &answers).await;
    // The tool set is stored, so after the restart only the call contacts the server.
    let request = pb::ExecuteTurnRequest {
        session: Some(pb::Session { tools: from(played()), ..pb::Session::default() }),
        ..turn("s", MODEL, "Hello")
    };
    let mut outcomes = vec![outcome(&host.run(request).await)];
    server.restart().await;
    outcomes.push(outcome(&host.run(turn("s", MODEL, "Again")).await));
    (server, outcomes)
}

/// Row F46
#[tokio::test(flavor = "multi_thread")]
async fn m13_a_call_is_repeated_in_a_new_session_where_a_restarted_server_has_lost_it() {
    for lost_session in [LostSession::NotFound, LostSession::BadRequest, LostSession::PlainBadRequest] {
        let (server, outcomes) =
            restarted_between_calls(Habits { speaks: Speaks::Handshake, lost_session, ..Habits::default() }).await;
        let success = || (ToolOutcome::Success, "hi".to_owned());
        assert_eq!(outcomes, [success(), success()], "{lost_session:?}");
        assert_eq!(server.begun(), ["echo", "echo"], "{lost_session:?}");
        assert_eq!(server.opened(), (0, 2), "{lost_session:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m03_a_cursor_that_is_empty_or_does_not_advance_loses_no_tools() {
    for pages in [Pages::EmptyCursor, Pages::Stuck, Pages::Growing] {
        let server = McpServer::with(Habits { pages, ..Habits::default() }).await;
        let host = host(&server, AMPLE, &[json!([{"text": "Done."}])]).await;
        let events = host.run(asks(played())).await;
        assert_eq!(completed(&events).reason(), CompletionReason::Stop);
        let prompt = host.replica.scripted.prompts().pop().unwrap();
        let offered: Vec<_> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
        let expected = ["echo", "fails", "fs_read", "meets", "stalls"];
        assert_eq!(offered, expected, "{pages:?}");
        assert!(server.lists() <= 2, "{pages:?}: {}", server.lists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m05_the_model_reads_structured_content_and_the_event_has_the_line_for_people() {
    let server = McpServer::start().await;
    server.add("structured").await;
    let answers = [json!([call("structured")]), json!([{"text": "{{result:structured}}"}])];
    let host = host(&server, AMPLE, &answers).await;
    let events = host.run(asks(played())).await;
    let cities = r#"{"cities":["Bonn","Ulm"]}"#;
    assert_eq!(message_text(messages(&events).last().unwrap()), cities);
    assert_eq!(outcome(&events), (ToolOutcome::Success, cities.to_owned()));
    assert_eq!(results(&events)[0].display_text, "Two cities found.");
    let stored = host.messages("s").await;
    let Some(pb::part::Content::ToolResult(stored)) = &stored[2].parts[0].content else {
        panic!("no result: {stored:?}")
    };
    assert_eq!(stored.display_text, "Two cities found.");
}

#[tokio::test(flavor = "multi_thread")]
async fn m05_a_picture_of_a_result_is_a_medium_that_the_model_gets() {
    let server = McpServer::start().await;
    server.add("draws").await;
    let steps = json!({"input_media_types": ["image/*"], "steps": [
        {"when": {"call": 0}, "say": [call("draws")]},
        {"when": {"call": 1}, "say": [{"text": "Nice."}]},
    ]});
    let options = Options {
        mcp: vec![("played".to_owned(), server.config(AMPLE))],
        ..Options::default().script("it", steps.to_string())
    };
    let host = Host::with(options).await;
    let events = host.run(asks(played())).await;
    let [result] = results(&events)[..] else { panic!("not one result") };
    let [text, picture] = &result.parts[..] else { panic!("not two parts: {result:?}") };
    assert_eq!(text.content, Some(pb::part::Content::Text("Here it is.".to_owned())));
    let Some(pb::part::Content::Media(picture)) = &picture.content else { panic!("no medium: {picture:?}") };
    assert_eq!(picture.media_type, "image/png");
    assert_eq!((picture.width, picture.height), (1, 1));
    let prompt = host.replica.scripted.prompts().pop().unwrap();
    assert!(format!("{prompt:?}").contains("image/png"), "{prompt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_spoken_to_in_the_newest_revision_that_it_knows() {
    for (speaks, opened) in [
        (Speaks::All, (1, 0)),
        (Speaks::Stateless, (1, 0)),
        (Speaks::Handshake, (0, 1)),
        (Speaks::HandshakeAlone, (0, 1)),
    ] {
        let server = McpServer::with(Habits { speaks, ..Habits::default() }).await;
        let answers = [json!([echo("hi")]), json!([{"text": "Done."}])];
        let host = host(&server, AMPLE, &answers).await;
        let events = host.run(asks(played())).await;
        assert_eq!(outcome(&events), (ToolOutcome::Success, "hi".into()), "{speaks:?}");
        assert_eq!(server.opened(), opened, "{speaks:?}");
    }
}

/// Row F46
#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_where_a_server_without_sessions_is_restarted() {
    let (server, outcomes) = restarted_between_calls(Habits { speaks: Speaks::Stateless, ..Habits::default() }).await;
    let success = || (ToolOutcome::Success, "hi".to_owned());
    assert_eq!(outcomes, [success(), success()]);
    assert_eq!(server.begun(), ["echo", "echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_once_for_calls_at_once_and_again_when_it_is_refused() {
    let server = McpServer::with(Habits { oauth: true, ..Habits::default() }).await;
    server.add("repeats").await;
    let steps = json!({"steps": [
        {"when": {"call": 0, "user_contains": "Again"}, "say": [call("repeats")]},
        {"when": {"call": 0}, "say": [call("meets"), call("meets")]},
        {"when": {"call": 1}, "say": [{"text": "Done."}]},
    ]});
    let options = Options {
        mcp: vec![("played".to_owned(), server.config(AMPLE))],
        ..Options::default().script("it", steps.to_string())
    };
    let host = Host::with(options).await;
    let events = host.run(asks(played())).await;
    let outcomes: Vec<_> = results(&events).iter().map(|it| it.outcome()).collect();
    assert_eq!(outcomes, [ToolOutcome::Success, ToolOutcome::Success]);
    assert_eq!(server.issued(), 1);
    server.revoke();
    let again = pb::ExecuteTurnRequest { tools: from(played()), ..turn("s", MODEL, "Again") };
    let events = host.run(again).await;
    let gave = (ToolOutcome::Success, "you sent Bearer ***".to_owned());
    assert_eq!(outcome(&events), gave);
    assert_eq!(server.issued(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_not_run_where_no_token_can_be_had_and_the_secret_is_not_shown() {
    let server = McpServer::with(Habits { oauth: true, ..Habits::default() }).await;
    let mut config = server.config(AMPLE);
    if let Some(oauth) = &mut config.oauth {
        oauth.token_url = "http://127.0.0.1:1/token".to_owned();
    }
    let options = Options { mcp: vec![("played".to_owned(), config)], ..answering(&[json!([{"text": "Done."}])]) };
    let host = Host::with(options).await;
    let status = host.try_execute(asks(played())).await.unwrap_err();
    assert_eq!(refusal(&status, "server").1, "MCP_SERVER_FAILED");
    assert!(!status.message().contains(CLIENT_SECRET), "{status}");
    assert!(!status.message().contains("127.0.0.1"), "{status}");
    assert_eq!(server.issued(), 0);
}
