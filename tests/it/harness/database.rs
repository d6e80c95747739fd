//! A PostgreSQL for this test process, and a database for each test, copied from a migrated
//! template.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use contextd::{
    app,
    postgres::{Postgres, Settings},
    store::{Database, migrate},
};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, Config, NoTls};

static SERVER: OnceCell<Postgres> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

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

/// A PostgreSQL that nobody else uses, with further settings.
pub async fn own_server(more: &[(&str, &str)]) -> Postgres {
    let mut settings = Settings::new("", env!("CARGO_BIN_EXE_contextd"));
    settings.search_path = std::env::var_os("PATH").unwrap_or_default();
    settings.cache_dir =
        std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/contextd"));
    settings.max_connections = 200;
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

/// A connection of its own, for a look at what is stored.
pub async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn pool(connection: Config, row_security: bool) -> Database {
    let mut config = contextd::config::Config::default();
    config.database.pool_size = 8;
    // Other tests keep the machine busy.
    config.database.acquire_timeout = Duration::from_secs(10);
    config.database.statement_timeout = Duration::from_secs(30);
    config.database.row_security = row_security;
    Database::new(&app::database_settings(&config, connection)).unwrap()
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
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = connect(&postgres.config("postgres")).await;
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
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::create(postgres, &name).await
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
        pool(self.config.clone(), false)
    }

    /// The same, with row security. `migrate::run` sets it up.
    pub fn held_pool(&self) -> Database {
        pool(self.config.clone(), true)
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
    /// request that changed nothing.
    pub async fn contents(&self, client: &Client) -> Vec<(String, i64, String)> {
        let tables = client
            .query(
                "select tablename::text from pg_tables where schemaname = 'public'",
                &[],
            )
            .await
            .unwrap();
        let look = |table: &str| {
            format!(
                "select '{table}', count(*), coalesce(md5(string_agg(t::text, ',' order by t::text)), '') from {table} t"
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
