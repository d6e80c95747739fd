//! Runs the commands of docs/runbooks against the faults that raise their alerts, with both log formats. A script
//! replaces `kubectl`: it prints the server's log, and runs in the test's folder what would run in a pod. A second
//! script replaces `grpcurl` and prints its arguments.

use std::{
    collections::BTreeSet, fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, process::Command,
};

use contextd::pb::{
    self, context_service_client::ContextServiceClient, queue_service_client::QueueServiceClient,
    session_service_client::SessionServiceClient,
};
use serde_json::json;

use tokio_postgres::{Client, NoTls};

use crate::harness::{
    TestDatabase,
    cluster::Cluster,
    host::until,
    process::{Place, Served, url},
    requests::{enqueue, turn},
    upstream::{Reply, Upstream, said},
};

const FORMATS: [&str; 2] = ["text", "json"];
/// The input of the user, which must not be in the log.
const PROMPT: &str = "a question that no log shows";

/// `logs` prefixes each line like `--prefix --timestamps`; `exec` runs the command.
const KUBECTL: &str = r#"#!/bin/sh
case "$*" in
*" logs "*) sed 's|^|[pod/contextd-0/contextd] 2026-11-25T10:00:00Z |' "$LOG" ;;
*" exec "*) while [ "$1" != -- ]; do shift; done; shift; eval "$(echo "$@" | sed "s|127.0.0.1:9090|$ADMIN|")" ;;
*"get pods"*"-o name"*) echo pod/contextd-0 ;;
*) echo "kubectl $*" ;;
esac
"#;

const GRPCURL: &str = "#!/bin/sh\necho grpcurl $*\n";

/// Runbooks whose commands are not tested here, with the reason.
const NOT_RUN: [(&str, &str); 5] = [
    ("ContextdAbsent", "kubectl alone: what a cluster shows"),
    ("ContextdModelSlow", "metrics alone"),
    ("ContextdStreamsLag", "kubectl alone: what a cluster shows"),
    ("ContextdTakeovers", "kubectl alone: what a cluster shows"),
    ("ContextdVersionsDiffer", "kubectl alone: what a cluster shows"),
];

/// A server with a simulated model service, a log in one format, and the environment for the commands of runbooks.
struct Operated {
    served: Served,
    upstream: Upstream,
    database: TestDatabase,
    admin: u16,
    place: Place,
    tools: tempfile::TempDir,
}

impl Operated {
    async fn new(format: &str) -> Self {
        Self::over(format, TestDatabase::new().await).await
    }

    async fn over(format: &str, database: TestDatabase) -> Self {
        let upstream = Upstream::start().await;
        let (place, admin) = place(format, &upstream.base_url());
        let served = place.serve_over(&database).await;
        Self { served, upstream, database, admin, place, tools: tools() }
    }

    /// Runs a turn to its end. The model service returns this reply.
    async fn turn(&self, session: &str, reply: Reply) {
        self.upstream.answer(reply);
        let request = turn(session, "main/gpt-4o", PROMPT);
        let mut turns = self.served.turns().await;
        let mut events = turns.execute_turn(request).await.unwrap().into_inner();
        while events.message().await.unwrap().is_some() {}
    }

    fn look(&self, runbook: &str) -> String {
        let served = (&self.served, self.admin);
        look(runbook, served, &self.database, &self.tools)
    }
}

/// The role of a server that is not a superuser, because connection limits do not apply to superusers.
const ROLE: &str = "operated";

/// The database with this role, and a superuser connection.
async fn in_role(cluster: &Cluster) -> (TestDatabase, Client) {
    let client = cluster.database().client().await;
    let grants = format!(
        "create role {ROLE} login; grant all on schema public to {ROLE};
         grant all on all tables in schema public to {ROLE};
         grant all on all sequences in schema public to {ROLE}"
    );
    client.batch_execute(&grants).await.unwrap();
    let admitted = cluster.data_dir().join("pg_ident.conf");
    let lines = fs::read_to_string(&admitted).unwrap();
    let (us, _) = lines.trim_end().rsplit_once(' ').unwrap();
    fs::write(&admitted, format!("{lines}{} {ROLE}\n", us.lines().last().unwrap())).unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();
    let mut database = cluster.database();
    database.config.user(ROLE);
    let connects = || async { database.config.connect(NoTls).await.is_ok() };
    until("the role to be admitted", connects).await;
    (database, client)
}

/// Terminates the connections of the server and prevents new ones.
async fn cut_off(client: &Client) {
    // This must be committed before the connections end, or a reconnect is accepted.
    let shut = format!("alter role {ROLE} connection limit 0");
    client.batch_execute(&shut).await.unwrap();
    let cut = format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'");
    client.batch_execute(&cut).await.unwrap();
}

/// The settings of a server with an admin port. Returns the port.
fn place(format: &str, base_url: &str) -> (Place, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = listener.local_addr().unwrap().port();
    let settings = format!(
        "[server]\nadmin_listen = '127.0.0.1:{admin}'\n\
         [database]\npool_size = 16\n\
         [telemetry]\nlog_format = '{format}'\n\
         [turn]\nmax_call_attempts = 2\nlease_ttl = '1s'\n\
         [models]\ndefault_model = 'main/gpt-4o'\n\
         [providers.main]\nkind = 'openai'\nbase_url = '{base_url}'\napi_key = 'sk-x'\n"
    );
    (Place::new(&settings), admin)
}

fn tools() -> tempfile::TempDir {
    let tools = tempfile::tempdir().unwrap();
    for (name, script) in [("kubectl", KUBECTL), ("grpcurl", GRPCURL)] {
        let program = tools.path().join(name);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    tools
}

/// Runs the first commands of a runbook and returns their output.
fn look(runbook: &str, (served, admin): (&Served, u16), database: &TestDatabase, tools: &tempfile::TempDir) -> String {
    let page = fs::read_to_string(format!("docs/runbooks/{runbook}.md")).unwrap();
    let (_, look) = page.split_once("## Look").unwrap();
    let commands = look.split("```").nth(1).unwrap().strip_prefix("sh\n").unwrap();
    let file = tools.path().join("log");
    fs::write(&file, served.log_text()).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_contextd")).parent().unwrap();
    let path = format!("{}:{}:{}", tools.path().display(), program.display(), inherited_path());
    let output = Command::new("bash")
        .args(["-c", commands])
        .env_clear()
        .env("PATH", path)
        .env("LOG", &file)
        .env("ADMIN", format!("127.0.0.1:{admin}"))
        .env("DATABASE_URL", url(database))
        .env("CONTEXTD_URL", format!("http://{}", served.address))
        .envs([
            ("NAMESPACE", "n"),
            ("RELEASE", "r"),
            ("PODS", "p"),
            ("POD", "contextd-0"),
            ("NAME", "c"),
            ("ADDRESS", "localhost:50051"),
            ("TENANT", "t"),
            ("SESSION", "good"),
        ])
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[expect(clippy::disallowed_methods, reason = "the programs that commands need")]
fn inherited_path() -> String {
    std::env::var("PATH").unwrap()
}

/// The lines of a log that contain this text.
fn lines<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(text)).collect()
}

fn refusal(status: u16) -> Reply {
    let error = json!({"error": {"message": PROMPT, "type": "invalid_request_error", "code": "bad"}});
    Reply::json(status, &error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_leaves_one_line_in_the_log_with_its_reason_and_no_content() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        operated.turn("good", Reply::events(said(&["Hello."]))).await;
        operated.turn("bad", refusal(400)).await;
        operated.served.wait_for_log("turn failed").await;
        let log = operated.served.log_text();
        let failed = lines(&log, "turn failed");
        let [line] = failed[..] else { panic!("{failed:?}") };
        for fact in ["bad", "default", "provider_bad_request", "main", "400"] {
            assert!(line.contains(fact), "{format}: {fact}: {line}");
        }
        for field in ["session.id", "turn.id", "tenant", "reason", "provider", "attempt"] {
            assert!(line.contains(field), "{format}: {field}: {line}");
        }
        assert!(!line.contains(PROMPT), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_of_a_json_log_is_json_and_names_sessions_alike() {
    let operated = Operated::new("json").await;
    operated.turn("bad", refusal(401)).await;
    for line in ["turn failed", "ExecuteTurn"] {
        operated.served.wait_for_log(line).await;
    }
    let mut named = 0;
    for line in operated.served.log_text().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(line.get("session").is_none(), "{line}");
        named += usize::from(line.get("session.id").is_some());
    }
    assert!(named > 1, "{}", operated.served.log_text());
    let printed = operated.served.printed();
    assert!(!printed.is_empty());
    for line in printed {
        let parsed = serde_json::from_str::<serde_json::Value>(&line);
        assert!(parsed.is_ok_and(|it| it.is_object()), "no JSON: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runbooks_of_model_faults_show_the_turn_and_its_reason_and_no_other_lines() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        operated.turn("good", Reply::events(said(&["Hello."]))).await;
        for _ in 0..2 {
            operated.upstream.answer(refusal(503));
        }
        operated.turn("overloaded", refusal(503)).await;
        operated.turn("refused", refusal(401)).await;
        operated.turn("bad", refusal(400)).await;
        operated.served.wait_for_log("provider_bad_request").await;
        for (runbook, expected) in [
            ("ContextdTurnsFail", ["provider_overloaded", "provider_bad_request"]),
            ("ContextdModelFails", ["retrying a failed model call", "provider_bad_request"]),
            ("ContextdModelKeyRefused", ["provider_auth", "refused"]),
        ] {
            let shown = operated.look(runbook);
            for text in expected {
                assert!(shown.contains(text), "{format}, {runbook}: {text}:\n{shown}");
            }
            for noise in ["model call measured", "good"] {
                assert!(!shown.contains(noise), "{format}, {runbook}: {noise}:\n{shown}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_failed_calls_shows_those_alone() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        operated.turn("good", Reply::events(said(&["Hello."]))).await;
        let client = operated.database.client().await;
        client.batch_execute("alter table sessions add constraint broken check (false) not valid").await.unwrap();
        let request = turn("broken", "main/gpt-4o", PROMPT);
        let answer = operated.served.turns().await.execute_turn(request).await;
        answer.expect_err("the database refuses it");
        operated.served.wait_for_log("INTERNAL").await;
        let shown = operated.look("ContextdCallsFail");
        assert!(shown.contains("INTERNAL") && shown.contains("broken"), "{format}:\n{shown}");
        assert!(!shown.contains("good"), "{format}:\n{shown}");
        assert!(shown.contains("SERVING"), "{format}: the health of each pod:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_failed_compactions_shows_the_session_and_the_cause() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        for _ in 0..3 {
            operated.turn("full", Reply::events(said(&["Well said."]))).await;
        }
        for _ in 0..3 {
            operated.upstream.answer(refusal(400));
        }
        let channel = operated.served.channel().await;
        let request = pb::CompactRequest { session_id: "full".to_owned(), wait: true, ..pb::CompactRequest::default() };
        let _ = ContextServiceClient::new(channel).compact(request).await;
        operated.served.wait_for_log("compaction failed").await;
        let shown = operated.look("ContextdCompactionsFail");
        assert!(shown.contains("compaction failed") && shown.contains("full"), "{format}:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_a_replica_that_is_not_ready_shows_why() {
    for format in FORMATS {
        let database = TestDatabase::empty().await;
        let upstream = Upstream::start().await;
        let (place, admin) = place(format, &upstream.base_url());
        let served = place.serve_unready_over(&database).await;
        served.wait_for_log("lacks migration").await;
        let shown = look("ContextdNotReady", (&served, admin), &database, &tools());
        assert!(shown.contains("NOT_SERVING"), "{format}:\n{shown}");
        let reason = "contextd: the database lacks migration 1";
        assert!(shown.contains(reason), "{format}: from the replica's health:\n{shown}");
        let logged = shown.lines().filter(|line| line.starts_with("[pod/"));
        assert!(logged.count() > 0, "{format}: from its log:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_failed_takeovers_shows_the_session_and_the_cause() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        operated.upstream.answer(Reply::events("").stall());
        let request = turn("orphan", "main/gpt-4o", PROMPT);
        let stream = operated.served.turns().await.execute_turn(request).await.unwrap();
        let Operated { served, database, place, tools, admin, .. } = operated;
        drop(stream);
        served.kill_9().await;
        let client = database.client().await;
        client
            .batch_execute("alter table session_run add constraint broken check (takeovers = 0) not valid")
            .await
            .unwrap();
        let next = place.serve_over(&database).await;
        next.wait_for_log("turn takeover failed").await;
        let shown = look("ContextdTakeoversFail", (&next, admin), &database, &tools);
        assert!(shown.contains("orphan"), "{format}:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_a_queue_that_waits_shows_the_session_whose_turn_cannot_begin() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        let hello = || Reply::events(said(&["Hello."]));
        operated.turn("good", hello()).await;
        operated.turn("waits", hello()).await;
        let channel = operated.served.channel().await;
        QueueServiceClient::new(channel).enqueue_message(enqueue("waits", PROMPT)).await.unwrap();
        let client = operated.database.client().await;
        client
            .batch_execute(
                "alter table turns add constraint broken check (turn_id is null) not valid;
                 update queue set starts_turn = true",
            )
            .await
            .unwrap();
        operated.served.wait_for_log("could not start a turn for a queued message; retrying later").await;
        let shown = operated.look("ContextdQueueWaits");
        let logged = lines(&shown, "[pod/");
        assert!(!logged.is_empty(), "{format}:\n{shown}");
        assert!(logged.iter().all(|line| line.contains("waits")), "{format}:\n{shown}");
        assert!(shown.contains("contextd.v1.SessionService/ListSessions"), "{format}: the sessions:\n{shown}");
        assert!(shown.contains("running turns"), "{format}: the tenant's limits:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runbooks_of_load_show_what_waits_what_is_large_and_the_limits_of_a_tenant() {
    for format in FORMATS {
        let operated = Operated::new(format).await;
        let hello = Reply::events(said(&["Hello."]));
        operated.turn("good", hello).await;
        let [holder, watcher] = [operated.database.client().await, operated.database.client().await];
        let lock = "begin; lock table session_run in access exclusive mode";
        holder.batch_execute(lock).await.unwrap();
        let mut sessions = SessionServiceClient::new(operated.served.channel().await);
        let request = pb::GetSessionRequest { session_id: "good".to_owned() };
        let waiting = tokio::spawn(async move { sessions.get_session(request).await });
        until("a statement that waits", || async {
            let sql = "select count(*) from pg_stat_activity
                        where datname = current_database() and wait_event_type = 'Lock'";
            watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        for (runbook, shows) in [
            ("ContextdDatabaseSlow", "last_autovacuum"),
            ("ContextdPoolExhausted", "wait_event"),
            ("ContextdOverhead", "kubectl -n n top pods"),
        ] {
            let shown = operated.look(runbook);
            assert!(shown.contains("Lock"), "{format} {runbook}:\n{shown}");
            assert!(shown.contains(shows), "{format} {runbook}:\n{shown}");
        }
        holder.batch_execute("rollback").await.unwrap();
        waiting.await.unwrap().unwrap();
        for (runbook, shows) in [
            ("ContextdDiskFull", "pg_size_pretty"),
            ("ContextdEstimatesOff", "Context of main/gpt-4o"),
            ("ContextdCallsRejected", "running turns"),
            ("ContextdTurnSlots", "running turns"),
        ] {
            let shown = operated.look(runbook);
            assert!(shown.contains(shows), "{format} {runbook}:\n{shown}");
            assert!(!shown.contains("ERROR"), "{format} {runbook}:\n{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_refused_connections_shows_the_limit_and_the_line() {
    for format in FORMATS {
        let cluster = Cluster::start(&[]).await;
        let (database, client) = in_role(&cluster).await;
        let operated = Operated::over(format, database).await;
        operated.turn("good", Reply::events(said(&["Hello."]))).await;
        // The server keeps its connection and gets no further ones.
        client.batch_execute(&format!("alter role {ROLE} connection limit 1")).await.unwrap();
        for n in 0..32 {
            operated.upstream.answer(Reply::events(said(&["Hello."])));
            let request = turn(&format!("more-{n}"), "main/gpt-4o", PROMPT);
            let mut turns = operated.served.turns().await;
            tokio::spawn(async move { turns.execute_turn(request).await.map(drop) });
        }
        operated.served.wait_for_log("no connection left").await;
        let shown = operated.look("ContextdConnectionsRefused");
        assert!(shown.contains("the database has no connection left"), "{format}: from the log:\n{shown}");
        assert!(
            shown.contains("too many connections for role"),
            "{format}: what psql gets in the server's role:\n{shown}"
        );
        assert!(!shown.contains("good"), "{format}:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_a_database_that_fails_shows_which_part_does_not_answer() {
    for format in FORMATS {
        let cluster = Cluster::start(&[]).await;
        let (database, client) = in_role(&cluster).await;
        let operated = Operated::over(format, database).await;
        cut_off(&client).await;
        let unready = || async {
            let shown = operated.look("ContextdDatabaseFails");
            shown.contains("NOT_SERVING") && shown.contains("too many connections for role")
        };
        until("the runbook to show it", unready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_a_broken_database_shows_what_is_broken() {
    const BROKEN: &str =
        "create function broken() returns trigger language c as '$libdir/plpgsql', 'plpgsql_call_handler';
        update pg_proc set probin = '/no/such.so' where proname = 'broken';
        create trigger broken before insert on sessions execute function broken()";
    for format in FORMATS {
        let operated = Operated::new(format).await;
        let client = operated.database.client().await;
        client.batch_execute(BROKEN).await.unwrap();
        let request = turn("broken", "main/gpt-4o", PROMPT);
        let refused = operated.served.turns().await.execute_turn(request).await;
        let refused = refused.map(drop).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
        assert!(refused.message().contains("cannot load its own files"), "{refused:?}");
        operated.served.wait_for_log("cannot load its own files").await;
        let shown = operated.look("ContextdDatabaseBroken");
        assert!(shown.contains("cannot load its own files; restart it"), "{format}:\n{shown}");
        assert!(shown.contains("DO"), "{format}: psql:\n{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_a_service_without_a_ready_replica_shows_why() {
    for format in FORMATS {
        let database = TestDatabase::empty().await;
        let upstream = Upstream::start().await;
        let (place, admin) = place(format, &upstream.base_url());
        let served = place.serve_unready_over(&database).await;
        served.wait_for_log("lacks migration").await;
        let shown = look("ContextdNoReplicaReady", (&served, admin), &database, &tools());
        for text in ["NOT_SERVING", "the database lacks migration 1", "get events"] {
            assert!(shown.contains(text), "{format}: {text}:\n{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runbook_of_turns_that_are_stuck_shows_the_turn_and_what_the_database_does() {
    for format in FORMATS {
        let cluster = Cluster::start(&[]).await;
        let (database, client) = in_role(&cluster).await;
        let operated = Operated::over(format, database).await;
        operated.upstream.answer(Reply::events(said(&["Hello."])).after("go"));
        let request = turn("stuck", "main/gpt-4o", PROMPT);
        let mut turns = operated.served.turns().await;
        let _stream = turns.execute_turn(request).await.unwrap();
        operated.upstream.asked(1).await;
        cut_off(&client).await;
        operated.upstream.release("go");
        operated.served.wait_for_log("turn stopped on this replica").await;
        let shown = operated.look("ContextdTurnsStuck");
        assert!(shown.contains("turn stopped on this replica") && shown.contains("stuck"), "{format}:\n{shown}");
        assert!(shown.contains("too many connections for role"), "{format}: psql:\n{shown}");
    }
}

#[test]
fn the_commands_of_each_runbook_are_run_or_there_is_a_reason() {
    let source = fs::read_to_string("tests/it/runbooks.rs").unwrap();
    let tests = source.split("#[tokio::test").skip(1);
    let run: BTreeSet<String> = tests
        .flat_map(|test| test.split('"'))
        .filter(|text| text.len() > "Contextd".len() && text.starts_with("Contextd"))
        .map(str::to_owned)
        .collect();
    let not_run: BTreeSet<String> = NOT_RUN
        .iter()
        .map(|(name, reason)| {
            assert!(!reason.is_empty(), "{name}");
            (*name).to_owned()
        })
        .collect();
    let both: Vec<_> = run.intersection(&not_run).collect();
    assert_eq!(both, Vec::<&String>::new());
    let pages = fs::read_dir("docs/runbooks").unwrap();
    let pages: BTreeSet<String> = pages
        .filter_map(|page| page.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    let known: BTreeSet<String> = run.union(&not_run).cloned().collect();
    assert_eq!(known, pages);
}
