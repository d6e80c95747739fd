//! Sessions that are transferred from one database to another, also from a database with an older schema.

use std::{collections::BTreeMap, fs};

use contextd::{
    model::{SessionId, TenantId},
    pb,
    store::{
        Reach,
        migrate::{self, SchemaCompatibility},
        transfer::{self, Choice, ImportSummary, TransferError},
    },
};
use serde_json::json;
use tokio_postgres::Client;

use crate::harness::{
    Host, TestDatabase,
    events::{all, completed},
    host::answering,
    process::Place,
    requests::result,
    transcripts::check_counters,
};

/// A database of an older contextd: a session with everything that can be in a transcript, its fork, a session with an
/// image, and one whose turn waits for its tool while a message is queued for the turn.
const OLDER: &str = include_str!("../fixtures/older-schema.sql");
const SESSIONS: [&str; 4] = ["chat", "fork", "pictures", "waits"];

async fn older() -> TestDatabase {
    let database = TestDatabase::empty().await;
    let client = database.client().await;
    client.batch_execute(OLDER).await.unwrap();
    database
}

async fn exported(database: &TestDatabase, choice: &Choice) -> (u64, Vec<u8>) {
    let (pool, mut file) = (database.pool(), Vec::new());
    let exporting = transfer::export(&pool, choice, &mut file);
    (Reach::All.scope(exporting).await.unwrap(), file)
}

async fn filled(database: &TestDatabase, mut file: &[u8]) -> Result<ImportSummary, TransferError> {
    let pool = database.pool();
    Reach::All.scope(transfer::import_sessions(&pool, &mut file)).await
}

/// The rows of each table, without the columns that differ between databases: the last use of content, and values that
/// the database or the schema generates.
async fn rows(client: &Client) -> BTreeMap<String, Vec<String>> {
    const OWN: &str = "array['version', 'live', 'lease_until', 'pos', 'touched_at', 'unused_since', 'ctx_messages', 'ctx_overhead', 'ctx_tokens', 'ctx_parts']";
    let tables = "select table_name::text from information_schema.columns where table_schema = 'public' and column_name = 'tenant_id'";
    let mut rows = BTreeMap::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let sql = format!(
            "select coalesce(array_agg(row order by row), '{{}}') from (select (to_jsonb(x) - {OWN})::text as row from {table} x) x"
        );
        let found = client.query_one(&sql, &[]).await.unwrap();
        rows.insert(table, found.get(0));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_an_older_schema_are_moved_with_all_that_belongs_to_them() {
    let older = older().await;
    let fit = Reach::All.scope(migrate::check_compatibility(&older.pool())).await.unwrap();
    let SchemaCompatibility::Refused(why) = fit else { panic!("{fit:?}") };
    assert!(why.contains("`contextd admin export`"), "{why}");

    let (sessions, file) = exported(&older, &Choice::default()).await;
    assert_eq!(sessions, 4);
    let newer = TestDatabase::new().await;
    let all_of_them = ImportSummary { added: 4, skipped: 0 };
    assert_eq!(filled(&newer, &file).await.unwrap(), all_of_them);

    let client = newer.client().await;
    let mut had = rows(&older.client().await).await;
    had.remove("session_context");
    assert_eq!(rows(&client).await, had);
    for session in SESSIONS {
        check_counters(&client, session).await;
    }
    let before = newer.row_counts().await;
    let none_of_them = ImportSummary { added: 0, skipped: 4 };
    assert_eq!(filled(&newer, &file).await.unwrap(), none_of_them);
    assert_eq!(newer.row_counts().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waited_when_its_session_was_moved_goes_on() {
    let older = older().await;
    let in_time = "update session_run set tool_deadline = now() + interval '1 hour', turn_deadline = now() + interval '1 hour' where state = 2;
                   update tool_calls set deadline = now() + interval '1 hour' where status = 0";
    let client = older.client().await;
    client.batch_execute(in_time).await.unwrap();
    let (_, file) = exported(&older, &Choice::default()).await;
    let newer = TestDatabase::new().await;
    filled(&newer, &file).await.unwrap();
    let host = Host::over(newer, answering(&[json!([{"text": "Fine."}])])).await;
    let session = host.session("waits").await;
    assert_eq!(session.state(), pb::SessionState::AwaitingTools);
    let mut stream = host.watch("waits", &session.current_turn_id, 0).await;
    let call = "select call_id from tool_calls where session_id = 'waits' and status = 0";
    let client = host.database.client().await;
    let call: String = client.query_one(call, &[]).await.unwrap().get(0);
    host.submit("waits", vec![result(&call, "Seen.")]).await;
    completed(&all(&mut stream).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_moved_alone_with_what_it_refers_to() {
    let older = older().await;
    let choice = Choice { tenant: Some(TenantId::new("default")), sessions: vec![SessionId::new("pictures")] };
    let (sessions, file) = exported(&older, &choice).await;
    assert_eq!(sessions, 1);
    let newer = TestDatabase::new().await;
    filled(&newer, &file).await.unwrap();
    let counts: BTreeMap<String, i64> = newer.row_counts().await.into_iter().collect();
    let count = |table: &str| counts[table];
    assert_eq!(["sessions", "session_run", "blobs", "blob_chunks", "toolsets"].map(count), [1; 5]);
    let other = Choice { tenant: Some(TenantId::new("other")), ..Choice::default() };
    assert_eq!(exported(&older, &other).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_lines_are_broken_is_not_added_and_those_before_it_are() {
    let (_, file) = exported(&older().await, &Choice::default()).await;
    let file = String::from_utf8(file).unwrap();
    let newer = TestDatabase::new().await;
    let broken = async |file: String, expected: &str| {
        let refused = filled(&newer, file.as_bytes()).await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    broken(String::from("{}"), "line 1 of the file: not a session export").await;
    let second = file.match_indices("\"session_run\"").nth(1).unwrap().0;
    let (begun, _) = file.split_at(second + 4_000);
    let line = begun.lines().count();
    broken(begun.to_owned(), &format!("line {line} of the file: EOF")).await;
    let cut = second + file[second..].find("\n{\"table\":\"parts\"").unwrap();
    broken(file[..cut].to_owned(), "ends before its last line").await;
    let other = format!("{}\n{}", begun.rsplit_once('\n').unwrap().0, r#"{"table":"pg_class","row":{}}"#);
    broken(other, &format!("line {line} of the file: unknown table pg_class")).await;
    let client = newer.client().await;
    let there = "select array_agg(session_id::text) from session_run";
    let there: Vec<String> = client.query_one(there, &[]).await.unwrap().get(0);
    assert_eq!(there, ["chat"]);
    check_counters(&client, "chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_and_read_by_the_program() {
    let (older, newer) = (older().await, TestDatabase::empty().await);
    let place = Place::new("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions");
    let said = async |database, action| {
        let output = place.admin_with_file(database, action, &file).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (done, written) = said(&older, "export").await;
    assert!(done && written.contains("4 sessions written"), "{written}");
    let (done, twice) = said(&older, "export").await;
    assert!(!done && twice.contains("cannot create"), "{twice}");
    let (done, added) = said(&newer, "import").await;
    assert!(done && added.contains("4 sessions added; 0 already existed"), "{added}");
    fs::write(&file, "").unwrap();
    let (done, empty) = said(&newer, "import").await;
    assert!(!done && empty.contains("not a session export"), "{empty}");
}
