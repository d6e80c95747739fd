//! A PostgreSQL for this test process, and a database for each test, copied from a migrated
//! template.

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
    app,
    postgres::{Postgres, Settings},
    store::{Database, migrate},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, Config, NoTls, error::SqlState};

use super::events::PATIENCE;

static SERVER: OnceCell<Postgres> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Databases whose tests have ended. The next test drops them: a thousand take ten gigabytes.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// The databases of the test that runs in this thread.
    static OURS: Ours = const { Ours(RefCell::new(Vec::new())) };
}

/// Names of databases that nobody needs when their thread ends.
struct Ours(RefCell<Vec<String>>);

impl Drop for Ours {
    fn drop(&mut self) {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        ended.append(self.0.get_mut());
    }
}

/// The template that every test's database is a copy of.
const TEMPLATE: &str = "contextd_template";

/// The PostgreSQL of this process; started by the first test that needs it, gone with the process.
pub async fn server() -> &'static Postgres {
    SERVER
        .get_or_init(|| async {
            let postgres = own_server(&[]).await;
            make_template(&postgres).await;
            postgres
        })
        .await
}

/// Connections that a PostgreSQL of the tests has room for.
const MOST_CONNECTIONS: u32 = 200;

/// Connections that a PostgreSQL of the tests has room for: as many as wanted, or fewer where
/// `CONTEXTD_TEST_MAX_CONNECTIONS` says so.
pub fn max_connections(wanted: u32) -> u32 {
    number("CONTEXTD_TEST_MAX_CONNECTIONS").map_or(wanted, |most| most.min(wanted))
}

/// Connections of a replica for requests and turns, where `CONTEXTD_TEST_POOL_SIZE` says so: four where
/// PostgreSQL has room for few. Some tests let several commits wait at once, on two replicas.
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

/// A PostgreSQL that nobody else uses, with further settings.
pub async fn own_server(more: &[(&str, &str)]) -> Postgres {
    let mut settings = Settings::new("", env!("CARGO_BIN_EXE_contextd"));
    settings.search_path = std::env::var_os("PATH").unwrap_or_default();
    settings.cache_dir =
        std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
    settings.max_connections = max_connections(MOST_CONNECTIONS);
    let ours = [
        ("max_locks_per_transaction", "128"),
        ("wal_init_zero", "off"),
        ("wal_recycle", "off"),
    ];
    let all = ours.iter().chain(more);
    settings.server_settings = all
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Postgres::scratch(Path::new(env!("CARGO_TARGET_TMPDIR")), settings)
        .await
        .unwrap()
}

async fn make_template(postgres: &Postgres) {
    let admin = connect(&postgres.config("postgres")).await;
    admin
        .batch_execute(&format!("drop database if exists {TEMPLATE}"))
        .await
        .unwrap();
    TestDatabase::migrated(postgres, TEMPLATE).await;
}

/// A connection of its own, for a look at what is stored. Where there is no room for it, those of an
/// earlier test are ending.
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
    tokio::time::timeout(PATIENCE, connected)
        .await
        .expect("PostgreSQL has no connection left")
}

fn pool(connection: Config, row_security: bool, size: u32) -> Database {
    let mut config = contextd::config::Config::default();
    config.database.pool_size = size as usize;
    // Other tests keep the machine busy.
    config.database.acquire_timeout = Duration::from_secs(10);
    config.database.statement_timeout = Duration::from_secs(30);
    config.database.row_security = row_security;
    Database::new(&app::database_settings(&config, connection)).unwrap()
}

/// The name of a database that goes when this thread's test has ended.
fn next_name() -> String {
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    OURS.with(|ours| ours.0.borrow_mut().push(name.clone()));
    name
}

/// One test's database.
pub struct TestDatabase {
    /// How to reach it.
    pub config: Config,
}

impl TestDatabase {
    /// A fresh copy of the template.
    pub async fn new() -> Self {
        let postgres = server().await;
        let name = next_name();
        let admin = connect(&postgres.config("postgres")).await;
        let ended = mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
        for database in ended {
            admin
                .batch_execute(&format!("drop database if exists {database} with (force)"))
                .await
                .unwrap();
        }
        admin
            .batch_execute(&format!("create database {name} template {TEMPLATE}"))
            .await
            .unwrap();
        Self {
            config: postgres.config(&name),
        }
    }

    /// A database without anything in it.
    pub async fn empty() -> Self {
        let postgres = server().await;
        Self::create(postgres, &next_name()).await
    }

    /// A database of that name on that server, with the schema.
    pub async fn migrated(postgres: &Postgres, name: &str) -> Self {
        let database = Self::create(postgres, name).await;
        migrate::run(&database.pool()).await.unwrap();
        database
    }

    async fn create(postgres: &Postgres, name: &str) -> Self {
        let admin = connect(&postgres.config("postgres")).await;
        admin
            .batch_execute(&format!("create database {name}"))
            .await
            .unwrap();
        Self {
            config: postgres.config(name),
        }
    }

    /// A pool for a replica.
    pub fn pool(&self) -> Database {
        self.pool_among(1)
    }

    /// A pool for one of so many replicas, which have room for all their connections together.
    pub fn pool_among(&self, replicas: u32) -> Database {
        // Each has connections beside the pool too, and so has the test.
        let room = (max_connections(MOST_CONNECTIONS) / (3 * replicas)).max(1);
        pool(self.config.clone(), false, usual_pool_size().min(room))
    }

    /// The same, with row security. `migrate::run` sets it up.
    pub fn held_pool(&self) -> Database {
        pool(self.config.clone(), true, usual_pool_size())
    }

    /// A plain connection, for a look at what is stored.
    pub async fn client(&self) -> Client {
        connect(&self.config).await
    }

    /// How many rows each table has: the same before and after a request that changed nothing.
    pub async fn row_counts(&self) -> Vec<(String, i64)> {
        let client = self.client().await;
        let tables = client
            .query(
                "select tablename::text from pg_tables where schemaname = 'public' order by 1",
                &[],
            )
            .await
            .unwrap();
        let mut counts = Vec::new();
        for row in tables {
            let table: String = row.get(0);
            let count = client
                .query_one(&format!("select count(*) from {table}"), &[])
                .await
                .unwrap();
            counts.push((table, count.get(0)));
        }
        counts
    }

    /// How many rows each table has, and a checksum of them all: the same before and after a
    /// request that changed nothing. A request that is refused may raise a session's version.
    pub async fn contents(&self, client: &Client) -> Vec<(String, i64, String)> {
        let tables = client
            .query(
                "select tablename::text from pg_tables where schemaname = 'public'",
                &[],
            )
            .await
            .unwrap();
        let look = |table: &str| {
            let left_out = if table == "session_run" {
                "version"
            } else {
                ""
            };
            format!(
                "select '{table}', count(*), coalesce(md5(string_agg(row, ',' order by row)), '')
                   from (select (to_jsonb(t) - '{left_out}')::text as row from {table} t) t"
            )
        };
        let looks: Vec<String> = tables.iter().map(|row| look(row.get(0))).collect();
        let rows = client
            .query(&format!("{} order by 1", looks.join(" union all ")), &[])
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect()
    }
}
