//! Clients that disappear, that never read, and that cancel in the middle of a call.

use std::{fs, time::Duration};

use contextd::pb::{self, event::Payload};
use serde_json::json;
use tonic::Request;

use crate::harness::{
    TestDatabase,
    events::{all as read_all, completed},
    host::until,
    process::Place,
    proxy::{Link, Target},
    requests::{result, submit, turn},
    survivor::{Survivor, asking, events, slow, two_tools},
};

use super::{PATIENT, all, becomes_true, check_slow, turn_of};

/// Row F23
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_does_not_stop_its_turn() {
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("slow", &slow());
    let served = place.serve_over(&database).await;
    let link = Link::to(Target::Tcp(served.address)).await;
    let mut host = Survivor::new(asking("scripted/slow", "chat"));
    host.send_to_address(link.address).await.unwrap();
    host.until(|payload| matches!(payload, Payload::TextDelta(_))).await;
    link.strand();
    let ended = "select exists(select from session_run where state = 0)";
    becomes_true(&database.client().await, ended).await;
    assert_eq!(turn_of(&served, &host).await.state(), pb::TurnState::Completed);
    host.survive(&[&served]).await;
    check_slow(&host, &served).await;
}

/// Row F24
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_do_not_block_others() {
    const READERS: usize = 100;
    let flood =
        json!({ "steps": [{ "say": [{ "repeat": { "text": "words and ", "times": 60_000 }, "chunk_chars": 50 }] }] });
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("flood", &flood);
    let served = place.serve_over(&database).await;
    let mut host = Survivor::new(asking("scripted/flood", "chat"));
    host.send_to(&served).await.unwrap();
    let before = resident(served.pid());
    let mut stalled = Vec::new();
    let mut turns = served.turns().await;
    for _ in 0..READERS {
        let watch = pb::WatchEventsRequest { session_id: "chat".into(), follow: true, ..Default::default() };
        stalled.push(turns.watch_events(watch).await.unwrap().into_inner());
    }
    while host.next().await.unwrap().is_some() {}
    host.check_story(&served).await;
    let grown = resident(served.pid()).saturating_sub(before);
    eprintln!("{READERS} readers that never read: {} KiB more, {} KiB each", grown, grown / READERS);
    let mut beside = Survivor::new(asking("scripted/flood", "beside"));
    beside.survive(&[&served]).await;
    drop(stalled);
}

/// The resident memory of a process in KiB.
fn resident(pid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

/// Row F36
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_calls_leave_no_partial_state_and_no_broken_connection() {
    const MOMENTS: u32 = 60;
    let database = TestDatabase::new().await;
    let place = Place::new(PATIENT).script("tools", &two_tools());
    let served = place.serve_over(&database).await;
    let turns = served.turns().await;
    all((0..MOMENTS).map(|n| {
        let mut turns = turns.clone();
        let patience = Duration::from_micros(100 * u64::from(n));
        async move {
            let mut request = Request::new(asking("scripted/tools", &format!("chat-{n}")));
            request.set_timeout(patience);
            let _ = turns.execute_turn(request).await;
        }
    }))
    .await;
    for n in 0..MOMENTS {
        let session = format!("chat-{n}");
        // A turn that was admitted continues; one that was not starts now. Then the submission of its results is
        // cancelled at a random moment too.
        let begun = served.turns().await.execute_turn(asking("scripted/tools", &session)).await;
        drop(begun);
        until("the calls", || async { !open_calls(&database, &session).await.is_empty() }).await;
        let calls = open_calls(&database, &session).await;
        let results: Vec<pb::ToolResult> = calls.iter().map(|call| result(call, "fine")).collect();
        let mut submission = Request::new(submit(&session, results.clone()));
        submission.set_timeout(Duration::from_micros(100 * u64::from(n)));
        let _ = served.turns().await.submit_tool_results(submission).await;
        served.turns().await.submit_tool_results(submit(&session, results)).await.unwrap();
    }
    let look = database.client().await;
    becomes_true(&look, "select not exists(select from session_run where state <> 0)").await;
    let stuck =
        "select not exists(select from pg_stat_activity where datname = current_database() and state like 'idle in%')";
    becomes_true(&look, stuck).await;
    for n in 0..MOMENTS {
        let told = events(&served, &format!("chat-{n}")).await;
        let last = told.last().unwrap().clone();
        assert!(matches!(last.payload, Some(Payload::TurnCompleted(_))), "{n}: {last:?}");
    }
    let seen = {
        let mut stream =
            served.turns().await.execute_turn(turn("after", "scripted/tools", "Go")).await.unwrap().into_inner();
        read_all(&mut stream).await
    };
    completed(&seen);
}

async fn open_calls(database: &TestDatabase, session: &str) -> Vec<String> {
    let sql = "select call_id::text from tool_calls where session_id = $1 and closed_at is null";
    let rows = database.client().await.query(sql, &[&session]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
