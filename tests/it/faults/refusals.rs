//! Refused writes cause no entries in PostgreSQL's log.

use std::fs;

use contextd::pb::{self, event::Payload};
use futures_util::future::join_all;
use prost_types::FieldMask;
use serde_json::json;
use tonic::Status;

use crate::harness::{
    Host, Options,
    cluster::Cluster,
    events::{turn_id, until, until_written},
    host::{MODEL, call},
    requests::{enqueue, input, result, submit, tools, turn},
    transcripts::{append, fork, one_turn, says},
};

/// A text that only clients send.
const WORD: &str = "Rumpelstiltskin";

/// Number of concurrent requests.
const AT_ONCE: usize = 6;
/// How often each kind of request is tried.
const ROUNDS: usize = 4;

/// A PostgreSQL that writes a log file, and a replica that uses it.
async fn logged(options: Options) -> (Cluster, Host) {
    let settings = [("logging_collector", "on"), ("log_filename", "server.log")];
    let cluster = Cluster::start(&settings).await;
    let host = Host::over(cluster.database(), options).await;
    (cluster, host)
}

fn log_of(cluster: &Cluster) -> String {
    fs::read_to_string(cluster.data_dir().join("log/server.log")).unwrap()
}

/// Causes refused writes and returns the log of PostgreSQL.
async fn log_of_refusals(cluster: Cluster, host: Host) -> String {
    // The reason of a cancel is stored in the hot row.
    let mut live = host.execute(turn("chat", MODEL, "Please wait")).await;
    let first = live.message().await.unwrap().unwrap();
    let cancelled = turn_id(&[first.event.unwrap()]);
    until_written(&mut live, "Held").await;
    let cancel = pb::CancelTurnRequest {
        session_id: "chat".to_owned(),
        turn_id: cancelled,
        reason: WORD.to_owned(),
        ..pb::CancelTurnRequest::default()
    };
    host.turns().cancel_turn(cancel).await.unwrap();
    while live.message().await.unwrap().is_some() {}

    // The same request resumes its finished turn.
    let request = turn("chat", MODEL, WORD);
    for _ in 0..3 {
        ask(&host, request.clone()).await;
    }
    // Of several concurrent turns, one is admitted, both in an existing session and in a session that it creates.
    for session in ["chat", "chat", "chat", "new"] {
        let all = (0..AT_ONCE).map(|_| ask(&host, turn(session, MODEL, WORD)));
        join_all(all).await;
    }
    // An id that is in use.
    for _ in 0..2 {
        let create = pb::CreateSessionRequest {
            session: Some(pb::Session { session_id: "chat".to_owned(), ..pb::Session::default() }),
            ..pb::CreateSessionRequest::default()
        };
        host.sessions().create_session(create).await.unwrap_err();
    }
    log_of(&cluster)
}

/// Runs a turn. Ignores a refusal.
async fn ask(host: &Host, request: pb::ExecuteTurnRequest) {
    if let Ok(mut stream) = host.try_execute(request).await {
        while let Ok(Some(_)) = stream.message().await {}
    }
}

fn options() -> Options {
    let steps = json!({"steps": [
        {"when": {"user_contains": "wait"}, "say": [{"text": "Held"}, {"wait_for": "go"}]},
        {"when": {"user_contains": "look", "call": 0}, "say": [call("look")]},
        {"when": {"otherwise": true}, "say": [{"text": "Fine."}]},
    ]});
    Options::default().script("it", steps.to_string())
}

fn errors(log: &str) -> usize {
    log.lines().filter(|line| line.contains("ERROR:")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_is_an_error_in_the_log_of_postgresql() {
    let (cluster, host) = logged(options()).await;
    let log = Box::pin(log_of_refusals(cluster, host)).await;
    assert!(log.contains("LOG:"), "it is the log: {log}");
    assert_eq!(errors(&log), 0, "{log}");
    assert!(!log.contains(WORD), "{log}");
}

/// The results of concurrent calls.
async fn at_once<T, F: Future<Output = Result<T, Status>>>(call: impl Fn(usize) -> F) -> Vec<Result<T, Status>> {
    join_all((0..AT_ONCE).map(call)).await
}

/// Fails unless at least one call succeeded.
fn one_is_taken<T>(what: &str, results: &[Result<T, Status>]) {
    let refused: Vec<_> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(refused.len() < AT_ONCE, "{what}: {refused:?}");
}

/// The request id of a round: the same for all calls, or one per call.
fn request_id(what: &str, round: usize, of: Option<usize>) -> String {
    let of = of.map_or_else(String::new, |n| n.to_string());
    format!("{WORD}-{what}-{round}-{of}")
}

/// Concurrent, identical usage reports.
async fn record_at_once(host: &Host, session: &str, round: usize) {
    let taken = at_once(|_| async {
        let request = pb::RecordUsageRequest {
            session_id: session.to_owned(),
            request_id: request_id("usage", round, None),
            usage: Some(pb::Usage { input_tokens: 100, output_tokens: 10, ..pb::Usage::default() }),
            ..pb::RecordUsageRequest::default()
        };
        host.contexts().record_usage(request).await
    });
    one_is_taken("RecordUsage", &taken.await);
}

/// Each operation that changes an idle session, concurrently.
async fn change_at_once(host: &Host, session: &str, round: usize) {
    let of_session = || session.to_owned();
    record_at_once(host, session, round).await;
    for same in [true, false] {
        let taken = at_once(|n| async move {
            let request = pb::AppendMessagesRequest {
                request_id: request_id(&format!("append-{same}"), round, (!same).then_some(n)),
                ..append(session, vec![says(pb::Role::User, WORD)])
            };
            host.try_append(request).await
        });
        one_is_taken("AppendMessages", &taken.await);
    }
    host.append(session, one_turn(&format!("c{round}"), 4_000)).await;
    let pruned = at_once(|_| async {
        let request = pb::PruneToolOutputsRequest {
            session_id: of_session(),
            request_id: request_id("prune", round, None),
            minimum_tokens: Some(0),
            protect_tokens: Some(0),
            protect_turns: Some(0),
            ..pb::PruneToolOutputsRequest::default()
        };
        host.contexts().prune_tool_outputs(request).await
    })
    .await;
    one_is_taken("PruneToolOutputs", &pruned);
    let pruned = pruned.into_iter().find_map(Result::ok).unwrap();
    let pruned_at_seq = pruned.into_inner().report.unwrap().pruned_at_seq;
    let taken = at_once(|_| async {
        let request = pb::RestoreToolOutputsRequest {
            session_id: of_session(),
            request_id: request_id("restore", round, None),
            pruned_at_seq,
        };
        host.contexts().restore_tool_outputs(request).await
    });
    one_is_taken("RestoreToolOutputs", &taken.await);
    host.append(session, one_turn(&format!("d{round}"), 4_000)).await;
    host.append(session, one_turn(&format!("e{round}"), 10)).await;
    let compacted = at_once(|_| async {
        let request = pb::CompactRequest {
            session_id: of_session(),
            request_id: request_id("compact", round, None),
            strategy: pb::CompactionStrategy::Truncation.into(),
            target_tokens: 1_000,
            wait: true,
            ..pb::CompactRequest::default()
        };
        host.contexts().compact(request).await
    })
    .await;
    one_is_taken("Compact", &compacted);
    let made = compacted.into_iter().find_map(Result::ok).unwrap();
    let made = made.into_inner().compaction.unwrap().compaction_id;
    let taken = at_once(|_| async {
        let request = pb::RevertCompactionRequest {
            session_id: of_session(),
            compaction_id: made.clone(),
            request_id: request_id("revert", round, None),
        };
        host.contexts().revert_compaction(request).await
    });
    one_is_taken("RevertCompaction", &taken.await);
    for same in [true, false] {
        let etag = host.session(session).await.etag;
        let taken = at_once(|n| {
            let etag = etag.clone();
            async move {
                let request = pb::UpdateSessionRequest {
                    session: Some(pb::Session {
                        session_id: session.to_owned(),
                        system_prompt: format!("{WORD} {round} {same}"),
                        etag,
                        ..pb::Session::default()
                    }),
                    update_mask: Some(FieldMask { paths: vec!["system_prompt".to_owned()] }),
                    request_id: request_id(&format!("update-{same}"), round, (!same).then_some(n)),
                };
                host.sessions().update_session(request).await
            }
        });
        one_is_taken("UpdateSession", &taken.await);
    }
}

/// Each operation that creates or deletes sessions, concurrently.
async fn make_at_once(host: &Host, source: &str, round: usize) {
    let new = format!("fork-{round}");
    let at = host.session(source).await.last_seq;
    for same in [true, false] {
        let taken = at_once(|n| {
            let request = pb::ForkSessionRequest {
                request_id: request_id(&format!("fork-{same}"), round, (!same).then_some(n)),
                ..fork(source, at, &new)
            };
            host.try_fork(request)
        });
        let taken = taken.await;
        if same {
            one_is_taken("ForkSession", &taken);
        } else {
            assert!(taken.iter().all(Result::is_err), "the id is taken");
        }
    }
    for same in [true, false] {
        let made = format!("made-{round}-{same}");
        let taken = at_once(|n| {
            let made = made.clone();
            async move {
                let create = pb::CreateSessionRequest {
                    session: Some(pb::Session { session_id: made, ..pb::Session::default() }),
                    request_id: request_id(&format!("create-{same}"), round, (!same).then_some(n)),
                };
                host.sessions().create_session(create).await
            }
        });
        one_is_taken("CreateSession", &taken.await);
        let taken = at_once(|_| {
            let made = made.clone();
            async move {
                let delete = pb::DeleteSessionRequest {
                    session_id: made,
                    request_id: request_id(&format!("delete-{same}"), round, None),
                    ..pb::DeleteSessionRequest::default()
                };
                host.sessions().delete_session(delete).await
            }
        });
        one_is_taken("DeleteSession", &taken.await);
    }
}

/// Concurrent, identical turns, in this session and in a session that they create.
async fn begin_at_once(host: &Host, session: &str, round: usize) {
    for session in [session.to_owned(), format!("begun-{round}")] {
        let taken = at_once(|_| {
            let request = pb::ExecuteTurnRequest {
                request_id: request_id(&format!("turn-of-{session}"), round, None),
                ..turn(&session, MODEL, WORD)
            };
            async move {
                let mut events = host.turns().execute_turn(request).await?.into_inner();
                while events.message().await?.is_some() {}
                Ok::<_, Status>(())
            }
        });
        one_is_taken("ExecuteTurn", &taken.await);
    }
}

/// Each request that a running turn accepts, concurrently.
async fn answer_at_once(host: &Host, session: &str, round: usize) {
    for same in [true, false] {
        let mut live = host.execute(turn(session, MODEL, "Please look")).await;
        until(&mut live, |it| matches!(it, Payload::ActionRequired(_))).await;
        let pending = host.pending(session).await;
        let taken = at_once(|n| {
            let request = pb::SubmitToolResultsRequest {
                request_id: request_id(&format!("submit-{same}"), round, (!same).then_some(n)),
                ..submit(session, vec![result(&pending[0], &format!("{WORD} {n}"))])
            };
            let request = pb::SubmitToolResultsRequest {
                results: if same { vec![result(&pending[0], WORD)] } else { request.results },
                ..request
            };
            host.try_submit(request)
        });
        one_is_taken("SubmitToolResults", &taken.await);
        while live.message().await.unwrap().is_some() {}
    }
    let mut live = host.execute(turn(session, MODEL, "Please wait")).await;
    let first = live.message().await.unwrap().unwrap();
    let held = turn_id(&[first.event.unwrap()]);
    until_written(&mut live, "Held").await;
    let taken = at_once(|_| async {
        let request = pb::EnqueueMessageRequest {
            request_id: request_id("enqueue", round, None),
            message: Some(input(WORD)),
            on_idle: pb::IdleAction::Hold.into(),
            ..enqueue(session, "")
        };
        host.queue().enqueue_message(request).await
    });
    one_is_taken("EnqueueMessage", &taken.await);
    let taken = at_once(|_| async {
        let cancel = pb::CancelTurnRequest {
            session_id: session.to_owned(),
            turn_id: held.clone(),
            reason: WORD.to_owned(),
            request_id: request_id("cancel", round, None),
            ..pb::CancelTurnRequest::default()
        };
        host.turns().cancel_turn(cancel).await
    });
    one_is_taken("CancelTurn", &taken.await);
    while live.message().await.unwrap().is_some() {}
    let taken = at_once(|_| async {
        let clear =
            pb::ClearQueueRequest { session_id: session.to_owned(), request_id: request_id("clear", round, None) };
        host.queue().clear_queue(clear).await
    });
    one_is_taken("ClearQueue", &taken.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_that_comes_several_times_at_once_is_an_error_in_the_log_of_postgresql() {
    let (cluster, host) = logged(options()).await;
    host.create(pb::Session {
        session_id: "chat".to_owned(),
        model: MODEL.to_owned(),
        tools: tools(&["look"]),
        ..pb::Session::default()
    })
    .await;
    for round in 0..ROUNDS {
        change_at_once(&host, "chat", round).await;
        make_at_once(&host, "chat", round).await;
        begin_at_once(&host, "chat", round).await;
        answer_at_once(&host, "chat", round).await;
    }
    let log = log_of(&cluster);
    assert!(log.contains("LOG:"), "it is the log: {log}");
    assert_eq!(errors(&log), 0, "{log}");
    assert!(!log.contains(WORD), "{log}");
}

/// The condition that a commit checks before it writes.
fn guard(commit: &str) -> &str {
    let (_, rest) = commit.split_once("r.session_id = _session and ").unwrap();
    let (guard, _) = rest.split_once("\n    returning").unwrap();
    assert!(guard.starts_with("r.version = _version"), "{guard}");
    guard
}

/// A commit without the condition.
fn unguarded(commit: &str) -> String {
    let (before, after) = commit.split_once("select _tenant, _session, _request_id").unwrap();
    let (request, rest) = after.split_once("\n    on conflict").unwrap();
    let (_, rest) = rest.split_once(';').unwrap();
    let commit = format!("{before}select _tenant, _session, _request_id{request};{rest}");
    let guard = guard(&commit);
    commit.replacen(guard, &format!("(true or {guard})"), 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_compares_no_version_is_found_in_the_log() {
    let (cluster, host) = logged(options()).await;
    host.database.replace_commit_function(unguarded).await;
    host.with_turns("chat", &[10]).await;
    for round in 0..ROUNDS * 4 {
        record_at_once(&host, "chat", round).await;
    }
    let log = log_of(&cluster);
    eprintln!("{} errors in {} bytes of log", errors(&log), log.len());
    assert!(errors(&log) > 0, "{log}");
    assert!(log.contains(WORD), "{log}");
}

/// A commit that aborts instead of refusing: a number becomes null, which violates the constraint of its column.
fn aborting(commit: &str) -> String {
    let guard = guard(commit);
    let aborts = format!(" op = case when {guard} then _bigs[1] end,");
    let all = commit.replacen(guard, "true", 1);
    all.replacen(" op = _bigs[1],", &aborts, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_aborts_is_found_in_the_log() {
    let (cluster, host) = logged(options()).await;
    host.database.replace_commit_function(aborting).await;
    let log = Box::pin(log_of_refusals(cluster, host)).await;
    eprintln!("{} errors in {} bytes of log", errors(&log), log.len());
    assert!(errors(&log) >= 9, "{log}");
    assert!(log.contains("DETAIL:  Failing row"), "{log}");
}
