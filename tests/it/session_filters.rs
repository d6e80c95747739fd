//! ListSessions with a filter: the sessions found, the index used, and isolation between the labels of tenants.

use std::collections::BTreeMap;

use contextd::pb::{self, SessionState, event::Payload};
use serde_json::{Value, json};
use tokio_postgres::SimpleQueryMessage;

use crate::harness::{
    Host, Options, TestDatabase,
    events::until,
    requests::{tools, turn},
    transcripts::{fork, one_turn},
};

/// Creates a session with these labels.
async fn make(host: &Host, id: &str, labels: &[(&str, &str)]) {
    let session = pb::Session { session_id: id.to_owned(), metadata: map(labels), ..pb::Session::default() };
    let request = pb::CreateSessionRequest { session: Some(session), ..Default::default() };
    host.sessions().create_session(request).await.unwrap();
}

fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    labels.iter().map(owned).collect()
}

fn labelled(labels: &[(&str, &str)]) -> pb::SessionFilter {
    pb::SessionFilter { metadata: map(labels), ..Default::default() }
}

fn prefixed(text: &str) -> pb::SessionFilter {
    pb::SessionFilter { text_prefix: text.to_owned(), ..Default::default() }
}

fn in_states(states: &[SessionState]) -> pb::SessionFilter {
    pb::SessionFilter { states: states.iter().map(|&state| state.into()).collect(), ..Default::default() }
}

/// The ids of the sessions that match a filter. Fails unless pages of all sizes have the same ids.
async fn found(host: &Host, filter: pb::SessionFilter) -> Vec<String> {
    let whole = pages(host, &filter, 0).await;
    for page_size in [1, 2] {
        assert_eq!(pages(host, &filter, page_size).await, whole, "{filter:?}");
    }
    whole
}

async fn pages(host: &Host, filter: &pb::SessionFilter, page_size: i32) -> Vec<String> {
    let mut ids = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = pb::ListSessionsRequest { page_size, page_token, filter: Some(filter.clone()) };
        let answer = host.sessions().list_sessions(request).await;
        let page = answer.unwrap().into_inner();
        ids.extend(page.sessions.into_iter().map(|session| session.session_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_every_entry_of_their_metadata() {
    let host = Host::with(Options::default()).await;
    make(&host, "a", &[("user", "ann"), ("env", "prod")]).await;
    make(&host, "b", &[("user", "ann"), ("env", "test")]).await;
    make(&host, "c", &[]).await;
    make(&host, "d", &[("user", "annabel"), ("prod", "env")]).await;
    assert_eq!(found(&host, labelled(&[("user", "ann")])).await, ["b", "a"]);
    let both = labelled(&[("env", "prod"), ("user", "ann")]);
    assert_eq!(found(&host, both).await, ["a"]);
    assert!(found(&host, labelled(&[("user", "An")])).await.is_empty());
    assert_eq!(found(&host, pb::SessionFilter::default()).await, ["d", "c", "b", "a"]);

    // An updated session is found by its new values, and a fork by its source.
    let update = pb::UpdateSessionRequest {
        session: Some(pb::Session {
            session_id: "a".to_owned(),
            metadata: map(&[("user", "bob")]),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["metadata".to_owned()] }),
        ..Default::default()
    };
    host.sessions().update_session(update).await.unwrap();
    let fork =
        pb::ForkSessionRequest { session_id: "b".to_owned(), new_session_id: "e".to_owned(), ..Default::default() };
    host.sessions().fork_session(fork).await.unwrap();
    assert_eq!(found(&host, labelled(&[("user", "ann")])).await, ["e", "b"]);
    assert_eq!(found(&host, labelled(&[("user", "bob")])).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_the_beginning_of_their_id_or_title() {
    let host = Host::with(Options::default()).await;
    make(&host, "ab-1", &[]).await;
    make(&host, "x", &[("title", "ab and more")]).await;
    make(&host, "AB-2", &[("title", "Äpfel")]).await;
    make(&host, "ab", &[("title", "other"), ("user", "ann")]).await;
    make(&host, "b-ab", &[("subject", "ab")]).await;
    assert_eq!(found(&host, prefixed("ab")).await, ["ab", "x", "ab-1"]);
    assert_eq!(found(&host, prefixed("Äp")).await, ["AB-2"]);
    assert_eq!(found(&host, prefixed("ab-1")).await, ["ab-1"]);
    assert!(found(&host, prefixed("%")).await.is_empty());
    for title in ["two\nlines", "a\ttab", "n\0ul"] {
        let id = &title[..1];
        make(&host, &format!("titled-{id}"), &[("title", title)]).await;
        let expected = [format!("titled-{id}")];
        assert_eq!(found(&host, prefixed(&title[..4])).await, expected, "{title:?}");
    }
    let both = pb::SessionFilter { metadata: map(&[("user", "ann")]), ..prefixed("ab") };
    assert_eq!(found(&host, both).await, ["ab"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_found_as_its_source_is_whatever_its_length() {
    let host = Host::with(Options::default()).await;
    // The second session is copied in batches.
    for (id, messages) in [("short", 4), ("long", 600)] {
        make(&host, id, &[("team", "red"), ("title", "Two minds")]).await;
        let turns = (0..messages / 2).map(|n| one_turn(&format!("c{n}"), 1));
        let mut said: Vec<pb::InputMessage> = turns.flatten().take(messages).collect();
        while !said.is_empty() {
            let batch = said.drain(..said.len().min(300)).collect();
            host.append(id, batch).await;
        }
        let forked = fork(id, 0, &format!("{id}-fork"));
        host.try_fork(forked).await.unwrap();
    }
    let all = ["long-fork", "long", "short-fork", "short"];
    assert_eq!(found(&host, labelled(&[("team", "red")])).await, all);
    assert_eq!(found(&host, prefixed("Two")).await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_their_state_and_the_time_of_their_last_use() {
    let call = json!({"steps": [{"say": [{"tool_call": {"name": "look", "arguments": {}}}]}]});
    let held = json!({"steps": [{"say": [{"wait_for": "go"}, {"text": "Done."}]}]});
    let options = Options::default().script("calls", call.to_string()).script("held", held.to_string());
    let host = Host::with(options).await;
    make(&host, "idle", &[]).await;
    let waits = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("waits", "scripted/calls", "Look.") };
    let mut waiting = host.execute(waits).await;
    until(&mut waiting, |it| matches!(it, Payload::ActionRequired(_))).await;
    let running = turn("runs", "scripted/held", "Go.");
    let mut held = host.execute(running).await;
    until(&mut held, |it| matches!(it, Payload::StepStarted(_))).await;

    let check = async |states: &[SessionState], expected: &[&str]| {
        assert_eq!(found(&host, in_states(states)).await, expected);
    };
    check(&[SessionState::Idle], &["idle"]).await;
    check(&[SessionState::Running], &["runs"]).await;
    check(&[SessionState::AwaitingTools], &["waits"]).await;
    let live = [SessionState::AwaitingTools, SessionState::Running];
    check(&live, &["runs", "waits"]).await;
    let some = [SessionState::AwaitingTools, SessionState::Idle];
    check(&some, &["waits", "idle"]).await;

    // A live session reports which replica holds it, and until when.
    let session = host.session("runs").await;
    assert_eq!(session.holder, host.replica.engine.store().replica());
    let lease = session.lease_expire_time.unwrap();
    assert!(lease.seconds > session.update_time.unwrap().seconds);
    let idle = host.session("idle").await;
    assert_eq!((idle.holder.as_str(), idle.lease_expire_time), ("", None));

    let used = host.session("waits").await.update_time;
    let since = pb::SessionFilter { updated_since: used, ..Default::default() };
    let before = pb::SessionFilter { updated_before: used, ..Default::default() };
    assert_eq!(found(&host, since).await, ["runs", "waits"]);
    assert_eq!(found(&host, before).await, ["idle"]);
    host.release("go");
    drop((waiting, held));
}

/// Each filter reads only matching rows, also with a generic plan.
#[tokio::test(flavor = "multi_thread")]
async fn each_filter_uses_an_index() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client
        .batch_execute(
            "insert into sessions (tenant_id, session_id) select 't', 's' || n from generate_series(1, 20000) n;
             insert into session_run (tenant_id, session_id) select 't', 's' || n from generate_series(1, 20000) n;
             insert into session_activity (tenant_id, session_id, updated_at)
               select 't', 's' || n, now() - n * interval '1 s' from generate_series(1, 20000) n;
             insert into toolsets (tenant_id, toolset_id, tools, tokens, estimator) values ('t', 'none', '', 0, '');
             insert into session_revisions (tenant_id, session_id, revision, toolset_id, config, labels, title)
               select 't', 's' || n, 1, 'none', '', array[decode(md5((n % 5000)::text), 'hex')], 'title ' || n
                 from generate_series(1, 20000) n;
             set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off;",
        )
        .await
        .unwrap();
    client.batch_execute("vacuum analyze").await.unwrap();
    let statements = BTreeMap::from(contextd::store::session_filter::list_statements());
    let label = "array[decode(md5('7'), 'hex')]";
    let check = async |statement: &str, by: &str, most: f64| {
        let given = BTreeMap::from([
            ("tenant", "'t'"),
            ("states", if by == "'live'" { "array[1]" } else { "'{}'" }),
            ("since", "null"),
            ("until", "null"),
            ("after", "null"),
            ("after_session", "''"),
            ("limit", "10"),
            ("bytes", "1000000"),
            ("by", by),
            ("labels", if by == "'labels'" { label } else { "'{}'" }),
            ("text", if by == "'text'" { "'title 77'" } else { "''" }),
            ("text_end", "'title 78'"),
        ]);
        let named = statements[statement];
        let arguments: Vec<&str> = named.names.iter().map(|name| given[name.as_str()]).collect();
        let prepare = format!("deallocate all; prepare it as {}", named.sql);
        client.batch_execute(&prepare).await.unwrap();
        let arguments = arguments.join(", ");
        let explain = format!("explain (analyze, buffers, format json) execute it ({arguments})");
        let answers = client.simple_query(&explain).await.unwrap();
        let row = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan: Value = serde_json::from_str(row.unwrap()).unwrap();
        let read = plan[0]["Plan"]["Shared Hit Blocks"].as_f64().unwrap()
            + plan[0]["Plan"]["Shared Read Blocks"].as_f64().unwrap();
        assert!(read < most, "{by} read {read} pages: {plan:#}");
    };
    // A page of ten sessions reads about thirty pages per session.
    check("list", "'time'", 500.0).await;
    check("find", "'labels'", 500.0).await;
    check("find", "'text'", 5_000.0).await;
    check("find", "'live'", 500.0).await;
}
