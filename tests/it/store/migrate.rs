//! Migrations of databases in various states: with a newer schema, during a dump, and with a partially applied
//! migration.

use std::time::{Duration, Instant};

use contextd::store::migrate::{self, SchemaCompatibility};
use tokio_postgres::Client;

use crate::harness::{TestDatabase, events::TEST_TIMEOUT};

/// A migration that creates an index, as `migrations/README.md` requires.
const INDEX: (&str, &str) = (
    "V990__index",
    "-- oldest-program: 1\n-- no-transaction\n\
     create unique index concurrently if not exists extra on tenant_calibration (calls);",
);
/// A migration that changes a table.
const COLUMN: (&str, &str) =
    ("V991__column", "-- oldest-program: 1\nalter table sessions add column extra int; select 1;");

/// The recorded state of a migration.
async fn noted(client: &Client, version: i32) -> Option<(String, i32)> {
    let sql = "select name, oldest_program from refinery_schema_history where version = $1";
    client.query_opt(sql, &[&version]).await.unwrap().map(|row| (row.get(0), row.get(1)))
}

async fn exists(client: &Client, sql: &str) -> bool {
    !client.query(sql, &[]).await.unwrap().is_empty()
}

const VALID: &str = "select 1 from pg_index where indexrelid = to_regclass('extra') and indisvalid";
const INVALID: &str = "select 1 from pg_index where indexrelid = to_regclass('extra') and not indisvalid";

#[tokio::test]
async fn a_database_lacks_the_newest_migration_or_supports_this_program() {
    let database = TestDatabase::empty().await;
    assert_eq!(migrate::check_compatibility(&database.pool()).await.unwrap(), SchemaCompatibility::MissingMigration(1));
    let applied = migrate::run(&database.pool()).await.unwrap();
    assert_eq!(migrate::check_compatibility(&database.pool()).await.unwrap(), SchemaCompatibility::Fits);
    migrate::run_with(&database.pool(), &[INDEX, COLUMN]).await.unwrap();
    // This program has neither migration, and both name it as a compatible version.
    assert_eq!(migrate::check_compatibility(&database.pool()).await.unwrap(), SchemaCompatibility::Fits);
    assert_eq!(migrate::run(&database.pool()).await.unwrap(), 0, "{applied}");
    let contract = ("V992__contract", "-- oldest-program: 992\nalter table sessions drop column extra;");
    migrate::run_with(&database.pool(), &[INDEX, COLUMN, contract]).await.unwrap();
    let SchemaCompatibility::Refused(why) = migrate::check_compatibility(&database.pool()).await.unwrap() else {
        panic!("not refused")
    };
    assert!(why.contains("migration 992, which requires a contextd with migration 992 or later"), "{why}");
}

#[tokio::test]
async fn an_index_is_made_outside_of_a_transaction_by_one_of_several_processes() {
    let database = TestDatabase::new().await;
    let one = database.pool();
    let two = database.pool();
    let applied = tokio::join!(migrate::run_with(&one, &[INDEX]), migrate::run_with(&two, &[INDEX]));
    assert_eq!(applied.0.unwrap() + applied.1.unwrap(), 1);
    let client = database.client().await;
    assert!(exists(&client, VALID).await);
    assert_eq!(noted(&client, 990).await, Some(("index".to_owned(), 1)));
}

#[tokio::test]
async fn an_index_that_was_left_half_made_is_made_again() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client
        .batch_execute(
            "insert into tenant_calibration (tenant_id, model, ratio) values ('t', 'one', 1), ('t', 'two', 1)",
        )
        .await
        .unwrap();
    let failed = migrate::run_with(&database.pool(), &[INDEX]).await.unwrap_err().to_string();
    assert!(failed.contains("migration 990 (index) failed"), "{failed}");
    assert!(exists(&client, INVALID).await, "nothing was left behind: the test shows nothing");
    assert_eq!(noted(&client, 990).await, None);

    client.batch_execute("delete from tenant_calibration").await.unwrap();
    assert_eq!(migrate::run_with(&database.pool(), &[INDEX]).await.unwrap(), 1);
    assert!(exists(&client, VALID).await);
}

#[tokio::test]
async fn an_index_built_but_not_recorded_is_recorded() {
    let database = TestDatabase::new().await;
    let client = database.client().await;
    client.batch_execute(INDEX.1).await.unwrap();
    assert_eq!(migrate::run_with(&database.pool(), &[INDEX]).await.unwrap(), 1);
    assert_eq!(noted(&client, 990).await, Some(("index".to_owned(), 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_for_a_dump_lets_statements_through() {
    let database = TestDatabase::new().await;
    let dump = database.client().await;
    let client = database.client().await;
    dump.batch_execute("begin; lock table sessions in access share mode").await.unwrap();
    let pool = database.pool();
    let mut migrating = tokio::spawn(async move { migrate::run_with(&pool, &[COLUMN]).await });
    // A connection of the service has a lock timeout of two seconds.
    client.batch_execute("set lock_timeout = '2s'").await.unwrap();
    let waiting = "select pid from pg_locks where relation = 'sessions'::regclass and not granted";
    crate::harness::host::until("the migration waits", || exists(&client, waiting)).await;
    // Longer than the lock timeout: a statement that waited for the migration all this time would fail.
    let traffic = async {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            client
                .query("select session_id from sessions limit 1", &[])
                .await
                .expect("traffic waits for the migration");
        }
    };
    tokio::select! {
        () = traffic => {}
        ended = &mut migrating => panic!("it ended beside the dump: {ended:?}"),
    }
    dump.batch_execute("commit").await.unwrap();
    let applied = tokio::time::timeout(TEST_TIMEOUT, migrating).await.unwrap().unwrap();
    assert_eq!(applied.unwrap(), 1);
}
