//! Number of commits of a turn, counted by the server: from the commit records in its WAL and from its statement
//! statistics.

use std::{path::PathBuf, process::Command, sync::Arc};

use contextd::{
    model::Prompt,
    pb::{self, event::Payload, queue_service_client::QueueServiceClient},
    postgres::Postgres,
};
use serde_json::json;
use tokio_postgres::Client;

use crate::harness::{
    Options, Replica, TestDatabase, database,
    events::{calls_made, message_text, messages, until, until_action},
    requests::{approve, careful, decide, enqueue, one_by_one, result, submit, tools, turn},
};

/// Maximum number of steps with tools.
const MOST_STEPS: usize = 3;
/// Words of a short and of a long response.
const WORDS: [usize; 2] = [10, 10_000];

/// Statement statistics are only available if the server loads this library.
const LIBRARY: &str = "pg_stat_statements";

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_k_tool_steps_is_1_and_2k_and_1_commits_however_long_its_answers_are() {
    let server = Quiet::start().await;
    let mut options = Options {
        workers: false,
        row_security: false, // which would make each read a transaction
        ..Options::default()
    };
    for steps in 0..=MOST_STEPS {
        for words in WORDS {
            options = options.script(&format!("say-{steps}-{words}"), script(steps, words));
        }
    }
    let replica = Replica::start(&server.database, options).await;
    for steps in 0..=MOST_STEPS {
        let mut statements = Vec::new();
        for words in WORDS {
            let session = format!("chat-{steps}-{words}");
            for request in ["of a new session", "of an existing session"] {
                let (admission, whole) = commits_of_turn(&server, &replica, &session, steps, words, request).await;
                let what = format!("{steps} steps with tools, answers of {words} words, a turn {request}");
                assert_eq!(admission, 1, "commits before the model is called: {what}");
                assert_eq!(whole, 1 + 2 * steps + 1, "commits: {what}");
                statements.push(server.statements().await);
                if let Some(committed) = statements.last().unwrap().as_ref().map(Statements::commits) {
                    assert_eq!(committed, whole, "commits by {LIBRARY}: {what}: {statements:#?}");
                }
            }
        }
        assert_eq!(statements[0], statements[2], "statements of short and of long answers, new session");
        assert_eq!(statements[1], statements[3], "statements of short and of long answers, existing session");
    }
}

/// Maximum statements and bytes of WAL of a turn with one step and a response of 50 words, in a new session and in an
/// existing one. Includes the statements of its reader, which gets the events from memory.
const OF_ONE_STEP: [(i64, i64); 2] = [(17, 7_900), (13, 7_050)];

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_one_step_takes_few_statements_and_little_wal() {
    let server = Quiet::start().await;
    let options = Options {
        workers: false,
        row_security: false, // which would make each read a transaction
        ..Options::default()
    };
    let options = options.script("say-0-50", script(0, 50));
    let replica = Replica::start(&server.database, options).await;
    // Data that is read once and then cached does not count for a turn.
    commits_of_turn(&server, &replica, "before", 0, 50, "first").await;
    for (name, most) in ["of a new session", "of an existing session"].into_iter().zip(OF_ONE_STEP) {
        commits_of_turn(&server, &replica, "chat", 0, 50, name).await;
        if !server.statistics {
            return;
        }
        let (all, statements, wal) = server.all_statements().await;
        eprintln!("a turn {name}: {statements} statements, {wal} bytes of WAL");
        let (most_statements, most_wal) = most;
        assert!(statements <= most_statements && wal <= most_wal, "{statements}, {wal}: {all:#?}");
    }
}

/// Maximum statements of a step that calls a tool, including the submission of the result.
const OF_A_TOOL_STEP: i64 = 11;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_calls_a_tool_takes_few_statements_on_the_replica_that_gets_the_result() {
    let server = Quiet::start().await;
    let options = Options {
        workers: false,
        row_security: false, // which would make each read a transaction
        ..Options::default()
    };
    let options = options.script("say-0-50", script(0, 50)).script("say-1-50", script(1, 50));
    let replica = Replica::start(&server.database, options).await;
    // Data that is read once and then cached does not count for a turn.
    commits_of_turn(&server, &replica, "before", 1, 50, "first").await;
    let (_, before) = commits_of_turn(&server, &replica, "before", 0, 50, "second").await;
    let (_, without, _) = server.all_statements().await;
    let (_, commits) = commits_of_turn(&server, &replica, "before", 1, 50, "third").await;
    let (all, with, _) = server.all_statements().await;
    assert_eq!(commits - before, 2, "commits");
    if server.statistics {
        let statements = with - without;
        eprintln!("a step with a tool: {statements} statements");
        assert!(statements <= OF_A_TOOL_STEP, "{statements}: {all:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_submission_is_one_commit_also_when_it_hands_out_the_next_call() {
    let server = Quiet::start().await;
    let calls = json!([{ "tool_call": { "name": "probe" } }, { "tool_call": { "name": "probe" } }, { "tool_call": { "name": "probe" } }]);
    let script = json!({ "steps": [{ "when": { "call": 0 }, "say": calls }, { "say": [{ "text": "Done." }] }] });
    let options = Options {
        workers: false,
        row_security: false, // which would make each read a transaction
        ..Options::default()
    }
    .script("three", script.to_string());
    let replica = Replica::start(&server.database, options).await;
    let mut turns = replica.turns().await;
    let host_tools = vec![careful("probe")];
    let request = pb::ExecuteTurnRequest {
        tools: Some(pb::ToolSet { host_tools, ..pb::ToolSet::default() }),
        session: one_by_one(),
        ..turn("chat", "scripted/three", "Go")
    };
    let begun = server.position().await;
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let (head, _) = until_action(&mut stream).await;
    assert_eq!(server.commits_since(&begun).await, 2, "the admission, and the step with its calls");
    let made = calls_made(&head);
    for (n, call) in made.iter().enumerate() {
        for answer in [decide("chat", vec![approve(call)]), submit("chat", vec![result(call, "fine")])] {
            let before = server.position().await;
            let is_last = n + 1 == made.len() && !answer.results.is_empty();
            turns.submit_tool_results(answer).await.unwrap();
            if !is_last {
                until_action(&mut stream).await;
                assert_eq!(server.commits_since(&before).await, 1);
            }
        }
    }
    until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    let submissions = 2 * made.len();
    assert_eq!(server.commits_since(&begun).await, 2 + submissions + 1);
}

/// Holds for turns with input and for turns started by a queued message, with any number of queued messages.
#[tokio::test(flavor = "multi_thread")]
async fn with_messages_queued_the_model_is_called_after_two_commits() {
    let server = Quiet::start().await;
    let wait =
        |session: &str| json!({ "steps": [{ "say": [{ "wait_for": session }, { "text": "Done." }] }] }).to_string();
    let cases = [("asked-1", 1, true), ("asked-12", 12, true), ("started-0", 0, false), ("started-12", 12, false)];
    let options = Options {
        workers: false,
        row_security: false, // which would make each read a transaction
        ..Options::default()
    };
    let options = cases.iter().fold(options, |options, (name, ..)| options.script(name, wait(name)));
    let replica = Replica::start(&server.database, options).await;
    let mut turns = replica.turns().await;
    let mut queue = QueueServiceClient::new(replica.channel().await);
    for (session, held, asked) in cases {
        let model = format!("scripted/{session}");
        let own = pb::Session { session_id: session.to_owned(), model: model.clone(), ..pb::Session::default() };
        let request = pb::CreateSessionRequest { session: Some(own), request_id: String::new() };
        replica.sessions().await.create_session(request).await.unwrap();
        for n in 0..held {
            queue.enqueue_message(enqueue(session, &format!("message {n}"))).await.unwrap();
        }
        let watch = pb::WatchEventsRequest { session_id: session.to_owned(), follow: true, ..Default::default() };
        let mut events = turns.watch_events(watch).await.unwrap().into_inner();
        let before = replica.scripted.prompts().last().cloned();
        let begun = server.position().await;
        let starts = pb::IdleAction::StartTurn.into();
        let stream = match asked {
            true => Some(turns.execute_turn(turn(session, &model, "And this.")).await.unwrap()),
            false => {
                let request = pb::EnqueueMessageRequest { on_idle: starts, ..enqueue(session, "And this.") };
                queue.enqueue_message(request).await.unwrap();
                None
            }
        };
        let seen = until(&mut events, |payload| matches!(payload, Payload::MessagesApplied(_))).await;
        called_since(&replica, before.as_ref()).await;
        assert_eq!(server.commits_since(&begun).await, 2, "the admission, and the messages: {session}");
        let taken = seen.iter().find_map(|event| match &event.payload {
            Some(Payload::MessagesApplied(applied)) => Some(applied.messages.len()),
            _ => None,
        });
        assert_eq!(taken, Some(held + usize::from(!asked)));
        replica.scripted.release(session);
        until(&mut events, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
        assert_eq!(server.commits_since(&begun).await, 3, "and the end: {session}");
        drop(stream);
    }
}

/// Waits for the model call after `before`. The model is called a moment after the event of the step.
async fn called_since(replica: &Replica, before: Option<&Arc<Prompt>>) {
    while replica.scripted.prompts().last() == before {
        tokio::task::yield_now().await;
    }
}

/// Blocks until it is released, then writes this many words in each step, and calls a tool in every step but the last.
fn script(steps: usize, words: usize) -> String {
    let said = json!({ "repeat": { "text": "word ", "times": words } });
    let wait = json!({ "wait_for": "{{user}}" });
    let call = json!({ "tool_call": { "name": "probe" } });
    let say = |step| match step {
        _ if step == steps => json!([wait, said]),
        _ => json!([wait, said, call]),
    };
    json!({ "steps": (0..=steps).map(|step| json!({ "when": { "call": step }, "say": say(step) })).collect::<Vec<_>>() })
        .to_string()
}

/// Runs a turn. Returns the number of commits before its model is called, and the total.
async fn commits_of_turn(
    server: &Quiet,
    replica: &Replica,
    session: &str,
    steps: usize,
    words: usize,
    name: &str,
) -> (usize, usize) {
    let go = format!("{session} {name}");
    let mut turns = replica.turns().await;
    let mut request = turn(session, &format!("scripted/say-{steps}-{words}"), &go);
    request.tools = tools(&["probe"]);
    server.forget_statements().await;
    let begun = server.position().await;
    let asked = replica.scripted.prompts().last().cloned();
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    until(&mut stream, |payload| matches!(payload, Payload::StepStarted(_))).await;
    called_since(replica, asked.as_ref()).await;
    let admission = server.commits_since(&begun).await;
    replica.scripted.release(&go);
    for _ in 0..steps {
        let events = until(&mut stream, |payload| matches!(payload, Payload::ActionRequired(_))).await;
        let call = crate::harness::events::requested(&events).remove(0);
        turns.submit_tool_results(submit(session, vec![result(&call, "fine")])).await.unwrap();
    }
    let events = until(&mut stream, |payload| matches!(payload, Payload::TurnCompleted(_))).await;
    assert_eq!(message_text(messages(&events).last().unwrap()).split_whitespace().count(), words);
    (admission, server.commits_since(&begun).await)
}

/// A server with one database and no other activity.
struct Quiet {
    database: TestDatabase,
    admin: Client,
    /// Whether the server collects statement statistics.
    statistics: bool,
    _postgres: Postgres,
}

/// The statements that write, with the number of calls.
#[derive(Debug, PartialEq, Eq)]
struct Statements(Vec<(String, i64)>);

impl Quiet {
    async fn start() -> Self {
        let installed = database::connect(&database::server().await.config("postgres"))
            .await
            .query_opt("select from pg_available_extensions where name = $1", &[&LIBRARY])
            .await
            .unwrap();
        let statistics = installed.is_some();
        // Flushes are synchronous, so that committed data can be read from the files.
        let mut settings = vec![("autovacuum", "off"), ("synchronous_commit", "on"), ("full_page_writes", "off")];
        match statistics {
            // Include statements within functions.
            true => settings.extend([("shared_preload_libraries", LIBRARY), ("pg_stat_statements.track", "all")]),
            false => eprintln!("skipped: {LIBRARY} is not installed, so the WAL alone decides"),
        }
        let postgres = database::own_server(&settings).await;
        let database = TestDatabase::migrated(&postgres, "commits").await;
        let admin = database::connect(&postgres.config("postgres")).await;
        if statistics {
            admin.batch_execute(&format!("create extension if not exists {LIBRARY}")).await.unwrap();
        }
        Self { database, admin, statistics, _postgres: postgres }
    }

    /// All statements with their calls and bytes of WAL, and the sums. Empty without statistics. For a function, its
    /// statements are counted instead of the call, which has the same WAL. Foreign key checks of PostgreSQL are not
    /// counted.
    async fn all_statements(&self) -> (Vec<(String, i64, i64)>, i64, i64) {
        const ALL: &str =
            "select split_part(query, E'\n', 1), case when query like '-- store::commit::commit%' then 0 else calls end,
                    case when toplevel then wal_bytes else 0 end::bigint from pg_stat_statements s
            join pg_database d on d.oid = s.dbid
           where d.datname = 'commits' and query not in ('begin', 'commit') and query not like 'SELECT 1 FROM ONLY%' order by 1";
        let rows = match self.statistics {
            true => self.admin.query(ALL, &[]).await.unwrap(),
            false => Vec::new(),
        };
        let of_row = |it: &tokio_postgres::Row| (it.get(0), it.get(1), it.get(2));
        let all: Vec<(String, i64, i64)> = rows.iter().map(of_row).collect();
        let calls = all.iter().map(|(_, calls, _)| calls).sum();
        let wal = all.iter().map(|(_, _, bytes)| bytes).sum();
        (all, calls, wal)
    }

    async fn text(&self, query: &str) -> String {
        self.admin.query_one(query, &[]).await.unwrap().get(0)
    }

    /// The current end of the WAL.
    async fn position(&self) -> String {
        self.text("select pg_current_wal_flush_lsn()::text").await
    }

    /// The number of committed transactions since `start`, from the records of the WAL.
    async fn commits_since(&self, start: &str) -> usize {
        let end = self.position().await;
        if end == start {
            return 0;
        }
        let programs = PathBuf::from(self.text("select setting from pg_config where name = 'BINDIR'").await);
        let wal = PathBuf::from(self.text("show data_directory").await).join("pg_wal");
        let mut dump = Command::new(programs.join("pg_waldump"));
        dump.arg("--path").arg(wal).args(["--start", start, "--end", &end, "--rmgr", "Transaction"]);
        let output = tokio::task::spawn_blocking(move || dump.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains("desc: COMMIT")).count()
    }

    async fn forget_statements(&self) {
        if self.statistics {
            self.admin.execute("select pg_stat_statements_reset()", &[]).await.unwrap();
        }
    }

    /// The writes since the last reset. Reads are not included, because the number of event reads depends on timing.
    async fn statements(&self) -> Option<Statements> {
        const ALL: &str = "select split_part(query, E'\\n', 1), sum(calls)::bigint from pg_stat_statements s
            join pg_database d on d.oid = s.dbid where d.datname = 'commits'
               and (query like '-- store::commit::commit%' or query ~ '\\m(insert into|update|delete from) [a-z]') group by 1 order by 1";
        if !self.statistics {
            return None;
        }
        let rows = self.admin.query(ALL, &[]).await.unwrap();
        Some(Statements(rows.iter().map(|row| (row.get(0), row.get(1))).collect()))
    }
}

impl Statements {
    /// The calls of the function that writes a commit. Each call is a transaction.
    fn commits(&self) -> usize {
        let calls =
            self.0.iter().filter(|(name, _)| name.starts_with("-- store::commit::commit")).map(|(_, calls)| calls);
        usize::try_from(calls.sum::<i64>()).unwrap()
    }
}
