//! Row-level security as a second line of defense: a statement without its tenant condition finds no rows of other
//! tenants, and the roles of the service can change rows and nothing else.

use std::time::Duration;

use contextd::{
    model::{Access, SessionId, SessionKey, TenantId},
    pb::{self, event::Payload, session_service_client::SessionServiceClient, turn_service_client::TurnServiceClient},
    store::{Error, Reach, Store, migrate},
};
use serde_json::json;
use tokio_postgres::Client;
use tonic::{Code, Status};

use super::{Key, KeysFile, connect};
use crate::harness::{
    Options, Replica, TestDatabase,
    errors::refusal,
    events::{all, next},
    host::{MODEL, call, script},
    process::Place,
    requests::{result, submit, tools, turn},
};

const TENANT: &str = "set role contextd_tenant";
const WORKER: &str = "set role contextd_worker";
/// SQLSTATE insufficient_privilege.
const FORBIDDEN: &str = "42501";
const LEASE: Duration = Duration::from_secs(30);

/// A database that enforces the scope of statements, with a session of each of two tenants.
async fn held() -> (TestDatabase, Client) {
    let database = TestDatabase::new().await;
    migrate::run(&database.held_pool()).await.unwrap();
    let client = database.client().await;
    let sessions = "insert into sessions (tenant_id, session_id) values ('acme', 'a'), ('other', 'o')";
    client.batch_execute(sessions).await.unwrap();
    (database, client)
}

async fn seen(client: &Client) -> Vec<String> {
    let sql = "select session_id from sessions order by 1";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn refused(client: &Client, sql: &str) {
    let error = client.batch_execute(sql).await.unwrap_err();
    let code = error.code().unwrap().code();
    assert_eq!(code, FORBIDDEN, "{sql}: {error}");
}

#[tokio::test]
async fn a_statement_that_names_no_tenant_sees_the_rows_of_one_alone_or_none() {
    let (_database, client) = held().await;
    assert_eq!(seen(&client).await, ["a", "o"], "who owns the schema sees all");
    client.batch_execute(WORKER).await.unwrap();
    assert_eq!(seen(&client).await, ["a", "o"]);
    client.batch_execute(TENANT).await.unwrap();
    assert_eq!(seen(&client).await, [""; 0], "no tenant was told");
    let tell = "select set_config('contextd.tenant', 'acme', false)";
    client.batch_execute(tell).await.unwrap();
    assert_eq!(seen(&client).await, ["a"]);
    let changed = client.execute("update sessions set created_at = now()", &[]);
    assert_eq!(changed.await.unwrap(), 1);
    refused(&client, "insert into sessions (tenant_id, session_id) values ('other', 'smuggled')").await;
    refused(&client, "update sessions set tenant_id = 'other'").await;
}

#[tokio::test]
async fn every_table_with_a_tenant_is_held_also_one_that_a_later_migration_makes() {
    const LATER: (&str, &str) =
        ("V990__later", "-- oldest-program: 1\ncreate table later (tenant_id text not null, n int);");
    let (database, client) = held().await;
    migrate::run_with(&database.held_pool(), &[LATER]).await.unwrap();
    let sql = "select c.table_name::text, t.relrowsecurity,
                      array(select p.polname::text from pg_policy p where p.polrelid = t.oid order by 1)
                 from information_schema.columns c join pg_class t on t.oid = c.table_name::text::regclass
                where c.table_schema = 'public' and c.column_name = 'tenant_id' and t.relkind = 'r'";
    let rows = client.query(sql, &[]).await.unwrap();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let table: String = row.get(0);
        let held: (bool, Vec<String>) = (row.get(1), row.get(2));
        let expected = ["of_tenant", "of_worker"].map(str::to_owned).to_vec();
        assert_eq!(held, (true, expected), "{table}");
    }
}

/// Acceptance line S10 of guarding.
#[tokio::test]
async fn the_roles_of_the_service_change_rows_and_nothing_else() {
    let (_database, client) = held().await;
    for role in [TENANT, WORKER] {
        client.batch_execute(role).await.unwrap();
        for sql in [
            "create table x ()",
            "create schema x",
            "drop table sessions",
            "truncate sessions",
            "alter table sessions add column x int",
            "alter table sessions disable row level security",
            "drop policy of_tenant on sessions",
            "create function x() returns int language sql as 'select 1'",
            "delete from refinery_schema_history",
            "create role x",
            "select * from pg_authid",
            "copy sessions to program 'true'",
        ] {
            refused(&client, sql).await;
        }
    }
}

/// The statement that reads a session, without its tenant condition.
fn without_tenant(sql: &'static str) -> &'static str {
    if !sql.starts_with("-- store::session::session:") {
        return sql;
    }
    let (_, rest) = sql.split_once("tenant_id = ").unwrap();
    let end = rest.find(char::is_whitespace).unwrap();
    let of_tenant = format!("tenant_id = {}", &rest[..end]);
    let text = sql.replace(&of_tenant, "tenant_id is not null");
    let text = format!("{} and {}::text is not null", text.trim_end(), &rest[..end]);
    Box::leak(text.into_boxed_str())
}

/// A request of a tenant for a session of another tenant.
async fn read_anothers(row_security: bool) -> Result<(), Status> {
    let mut file = KeysFile::new();
    let keys = ["acme", "other"].map(|tenant| file.add(tenant, Access::Write));
    let options = Options { row_security, replace: Some(without_tenant), ..file.required() };
    let (_database, replica) = Replica::alone(options).await;
    let [acme, other] = [&keys[0], &keys[1]].map(|key| connect(&replica, key));
    let create = pb::CreateSessionRequest {
        session: Some(pb::Session { session_id: "only-others".to_owned(), ..pb::Session::default() }),
        ..pb::CreateSessionRequest::default()
    };
    let mut other = SessionServiceClient::new(other.await);
    other.create_session(create).await.unwrap();
    let get = pb::GetSessionRequest { session_id: "only-others".to_owned() };
    other.get_session(get.clone()).await.unwrap();
    let mut acme = SessionServiceClient::new(acme.await);
    acme.get_session(get).await.map(drop)
}

/// Acceptance line S9 of guarding: the same faulty statement with and without row-level security.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_forgot_its_tenant_shows_anothers_session_only_without_row_security() {
    read_anothers(false).await.unwrap();
    let status = read_anothers(true).await.unwrap_err();
    assert_eq!((status.code(), refusal(&status).reason.as_str()), (Code::NotFound, "SESSION_NOT_FOUND"));
}

/// Whether a task with this scope, or without one, sees the session of the tenant `default`.
async fn sees(reach: Option<Reach>, store: &Store) -> Result<bool, Error> {
    let key = SessionKey::new(TenantId::new("default"), SessionId::new("s"));
    let store = store.clone();
    let seeing = async move { store.session(&key).await.map(|found| found.is_some()) };
    let spawned = async { tokio::spawn(Reach::in_current_scope(seeing)).await };
    match reach {
        Some(reach) => reach.scope(spawned).await.unwrap(),
        None => spawned.await.unwrap(),
    }
}

/// Acceptance line S9 of guarding: nothing falls back to the role that sees every tenant.
#[tokio::test(flavor = "multi_thread")]
async fn with_row_security_a_task_that_does_not_say_its_reach_is_refused() {
    let (database, replica) = Replica::alone(Options::default()).await;
    migrate::run(&database.held_pool()).await.unwrap();
    let session = pb::Session { session_id: "s".to_owned(), ..pb::Session::default() };
    let create = pb::CreateSessionRequest { session: Some(session), ..pb::CreateSessionRequest::default() };
    let mut sessions = SessionServiceClient::new(replica.channel().await);
    sessions.create_session(create).await.unwrap();
    let store = |pool| Store::new(pool, "another".to_owned(), LEASE);
    let tenant = |name| Some(Reach::Tenant(TenantId::new(name)));
    let held = store(database.held_pool());
    let refused = sees(None, &held).await.unwrap_err();
    assert!(matches!(refused, Error::NoRowSecurityScope), "{refused}");
    assert!(sees(Some(Reach::All), &held).await.unwrap());
    assert!(sees(tenant("default"), &held).await.unwrap());
    assert!(!sees(tenant("other"), &held).await.unwrap());
    assert!(sees(None, &store(database.pool())).await.unwrap());
}

/// Runs a turn with a tool, in a session whose id another tenant uses too.
async fn converse(replica: &Replica, key: &Key) {
    let mut turns = TurnServiceClient::new(connect(replica, key).await);
    let request = pb::ExecuteTurnRequest { tools: tools(&["look"]), ..turn("chat", MODEL, "Go") };
    let mut stream = turns.execute_turn(request).await.unwrap().into_inner();
    let open = loop {
        let event = next(&mut stream).await.unwrap().unwrap();
        if let Some(Payload::ActionRequired(open)) = event.payload {
            break open;
        }
    };
    let results = submit("chat", vec![result(&open.result_call_ids[0], "it rains")]);
    turns.submit_tool_results(results).await.unwrap();
    let last = all(&mut stream).await.pop().unwrap();
    assert!(matches!(last.payload, Some(Payload::TurnCompleted(_))), "{last:?}");
    let mut sessions = SessionServiceClient::new(connect(replica, key).await);
    let listed = sessions.list_sessions(pb::ListSessionsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().sessions.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_converse_in_sessions_of_the_same_id_under_row_security() {
    let mut file = KeysFile::new();
    let keys = ["acme", "other"].map(|tenant| file.add(tenant, Access::Write));
    let calls = script(&[json!([{"text": "Let me see."}, call("look")]), json!([{"text": "It rains."}])]);
    let options = Options { row_security: true, ..file.required() };
    let (_database, replica) = Replica::alone(options.script("it", calls)).await;
    tokio::join!(converse(&replica, &keys[0]), converse(&replica, &keys[1]));
}

#[tokio::test]
async fn row_security_beside_a_transaction_pooler_is_refused() {
    let place = Place::new("[database]\nrow_security = true\ntransaction_pooler = true\n");
    let database = TestDatabase::new().await;
    let refused = place.try_serve_over(&database).await.err().unwrap();
    assert!(refused.contains("database.row_security"), "{refused}");
}
