//! A PostgreSQL for this test process, and a database for each test, copied from a migrated template.

use std::{
    cell::RefCell,
    mem,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use contextd::{
    config::{DatabaseConfig, TurnConfig},
    postgres::{Postgres, Settings},
    store::{Database, migrate},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, Config, NoTls, error::SqlState};

use super::{events::TEST_TIMEOUT, scratch::scratch};

static SERVER: OnceCell<Postgres> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Databases of tests that have ended. The next test drops them, since a thousand databases take ten gigabytes.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// The databases of the test in this thread.
    static OURS: Ours = const { Ours(RefCell::new(Vec::new())) };
}

/// Names of databases that are no longer needed when their thread ends.
struct Ours(RefCell<Vec<String>>);

impl Drop for Ours {
    fn drop(&mut self) {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        ended.append(self.0.get_mut());
    }
}

/// The template of every test's database.
const TEMPLATE: &str = "contextd_template";

/// The PostgreSQL of this process. The first test that needs it starts it; it stops with the process.
pub async fn server() -> &'static Postgres {
    SERVER
        .get_or_init(|| async {
            let postgres = own_server(&[]).await;
            make_template(&postgres).await;
            postgres
        })
        .await
}

/// The default `max_connections` of a test PostgreSQL.
const MOST_CONNECTIONS: u32 = 200;

/// The `max_connections` of a test PostgreSQL: `wanted`, but at most `CONTEXTD_TEST_MAX_CONNECTIONS` if that is set.
pub fn max_connections(wanted: u32) -> u32 {
    number("CONTEXTD_TEST_MAX_CONNECTIONS").map_or(wanted, |most| most.min(wanted))
}

/// The pool size of a replica: `CONTEXTD_TEST_POOL_SIZE` if set, else four if `CONTEXTD_TEST_MAX_CONNECTIONS` is set.
/// Some tests have several commits in progress at once, on two replicas.
pub fn pool_size() -> Option<u32> {
    number("CONTEXTD_TEST_POOL_SIZE").or_else(|| number("CONTEXTD_TEST_MAX_CONNECTIONS").map(|_| 4))
}

fn usual_pool_size() -> u32 {
    pool_size().unwrap_or(8)
}

fn number(variable: &str) -> Option<u32> {
    let value = std::env::var_os(variable)?.into_string().ok()?;
    Some(value.parse().expect("a number"))
}

/// A PostgreSQL that is not shared with other tests, with additional settings.
pub async fn own_server(more: &[(&str, &str)]) -> Postgres {
    let mut settings = Settings::new("", env!("CARGO_BIN_EXE_contextd"));
    settings.search_path = std::env::var_os("PATH").unwrap_or_default();
    settings.cache_dir = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
    settings.embedded.max_connections = max_connections(MOST_CONNECTIONS) as usize;
    let ours = [("max_locks_per_transaction", "128"), ("wal_init_zero", "off"), ("wal_recycle", "off")];
    let all = ours.iter().chain(more);
    settings.server_settings = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    scratch(Path::new(env!("CARGO_TARGET_TMPDIR")), settings).await.unwrap()
}

async fn make_template(postgres: &Postgres) {
    let admin = connect(&postgres.config("postgres")).await;
    admin.batch_execute(&format!("drop database if exists {TEMPLATE}")).await.unwrap();
    TestDatabase::migrated(postgres, TEMPLATE).await;
}

/// A separate connection for reading the stored data. If the server has no free connection, waits for those of an
/// earlier test to close.
pub async fn connect(config: &Config) -> Client {
    let connected = async {
        loop {
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, connected).await.expect("PostgreSQL has no connection left")
}

fn pool(connection: Config, row_security: bool, size: u32) -> Database {
    let config = DatabaseConfig {
        pool_size: size as usize,
        // Other tests keep the machine busy.
        acquire_timeout: Duration::from_secs(10),
        statement_timeout: Duration::from_secs(30),
        row_security,
        ..DatabaseConfig::default()
    };
    Database::new(&connection, &config, TurnConfig::default().lease_ttl).unwrap()
}

/// The name of a new database that is dropped after this thread's test has ended.
fn next_name() -> String {
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    OURS.with(|ours| ours.0.borrow_mut().push(name.clone()));
    name
}

/// The database of one test.
pub struct TestDatabase {
    pub config: Config,
}

impl TestDatabase {
    /// A new copy of the template.
    pub async fn new() -> Self {
        let postgres = server().await;
        let name = next_name();
        let admin = connect(&postgres.config("postgres")).await;
        let ended = mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
        for database in ended {
            admin.batch_execute(&format!("drop database if exists {database} with (force)")).await.unwrap();
        }
        admin.batch_execute(&format!("create database {name} template {TEMPLATE}")).await.unwrap();
        Self { config: postgres.config(&name) }
    }

    /// Makes the owners of matching turns appear to have died a while ago. `which` is a condition on `session_run`.
    /// Returns the number of turns.
    pub async fn owner_died(&self, which: &str) -> u64 {
        let client = self.client().await;
        let dead = "insert into replicas (replica_id, lease_until) values ('dead', now() - interval '1 second')
                    on conflict (replica_id) do update set lease_until = excluded.lease_until";
        client.execute(dead, &[]).await.unwrap();
        let left = format!(
            "update session_run set version = version + 1, owner = 'dead', lease_until = now() - interval '1 second'
              where state = 1 and {which}"
        );
        client.execute(&left, &[]).await.unwrap()
    }

    /// An empty database.
    pub async fn empty() -> Self {
        let postgres = server().await;
        Self::create(postgres, &next_name()).await
    }

    /// Creates a database with the schema on that server.
    pub async fn migrated(postgres: &Postgres, name: &str) -> Self {
        let database = Self::create(postgres, name).await;
        migrate::run(&database.pool()).await.unwrap();
        database
    }

    async fn create(postgres: &Postgres, name: &str) -> Self {
        let admin = connect(&postgres.config("postgres")).await;
        admin.batch_execute(&format!("create database {name}")).await.unwrap();
        Self { config: postgres.config(name) }
    }

    /// A connection pool for a replica.
    pub fn pool(&self) -> Database {
        self.pool_among(1)
    }

    /// A connection pool for one of `replicas` replicas, sized so that the server has room for all of them.
    pub fn pool_among(&self, replicas: u32) -> Database {
        // Each replica has connections outside the pool too, and so has the test.
        let room = (max_connections(MOST_CONNECTIONS) / (3 * replicas)).max(1);
        pool(self.config.clone(), false, usual_pool_size().min(room))
    }

    /// A connection pool with row-level security, which `migrate::run` sets up.
    pub fn held_pool(&self) -> Database {
        pool(self.config.clone(), true, usual_pool_size())
    }

    /// A separate connection for reading the stored data.
    pub async fn client(&self) -> Client {
        connect(&self.config).await
    }

    /// Replaces the function that writes commits, for all users of this database.
    pub async fn replace_commit_function(&self, change: impl FnOnce(&str) -> String) {
        const FUNCTION: &str = include_str!("../../../migrations/V2__commit.sql");
        let other = change(FUNCTION);
        assert!(other != FUNCTION, "nothing is otherwise");
        let create = other.replacen("create function", "create or replace function", 1);
        self.client().await.batch_execute(&create).await.unwrap();
    }

    /// The number of rows in each table, to check that a request changed nothing.
    pub async fn row_counts(&self) -> Vec<(String, i64)> {
        let client = self.client().await;
        let tables = client
            .query(
                "select tablename::text from pg_tables where schemaname = 'public' and tablename <> 'replicas' order by 1",
                &[],
            )
            .await
            .unwrap();
        let mut counts = Vec::new();
        for row in tables {
            let table: String = row.get(0);
            let count = client.query_one(&format!("select count(*) from {table}"), &[]).await.unwrap();
            counts.push((table, count.get(0)));
        }
        counts
    }

    /// The number of rows in each table with a checksum, to check that a request changed nothing. Session versions are
    /// left out, since a refused request may increment them. The table `replicas` is left out, since heartbeats
    /// continue.
    pub async fn contents(&self, client: &Client) -> Vec<(String, i64, String)> {
        let tables = client
            .query("select tablename::text from pg_tables where schemaname = 'public' and tablename <> 'replicas'", &[])
            .await
            .unwrap();
        let look = |table: &str| {
            let left_out = if table == "session_run" { "version" } else { "" };
            format!(
                "select '{table}', count(*), coalesce(md5(string_agg(row, ',' order by row)), '')
                   from (select (to_jsonb(t) - '{left_out}')::text as row from {table} t) t"
            )
        };
        let looks: Vec<String> = tables.iter().map(|row| look(row.get(0))).collect();
        let rows = client.query(&format!("{} order by 1", looks.join(" union all ")), &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }
}
