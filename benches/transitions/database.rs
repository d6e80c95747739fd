//! Databases with contextd's schema, and connections to them with the settings of the store's own.

use std::time::Duration;

use contextd::{
    postgres::Postgres,
    store::{Database, Settings, migrate},
};
use tokio_postgres::{Client, NoTls};

/// Creates a database with the whole schema.
pub(crate) async fn create(postgres: &Postgres, name: &str) {
    let admin = connect(postgres, "postgres").await;
    admin
        .batch_execute(&format!("create database {name}"))
        .await
        .unwrap();
    let settings = Settings {
        config: postgres.config(name),
        pool_size: 1,
        acquire_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_mins(1),
        connect_timeout: Duration::from_secs(10),
        statement_timeout: Duration::from_secs(30),
        idle_in_transaction_timeout: Duration::from_secs(10),
        ca_file: None,
        verify_host_name: true,
        transaction_pooler: false,
        row_security: false,
    };
    migrate::run(&Database::new(&settings).unwrap())
        .await
        .unwrap();
}

/// A connection that plans statements as the store's do.
pub(crate) async fn connect(postgres: &Postgres, name: &str) -> Client {
    let mut config = postgres.config(name);
    let options = format!(
        "{} -c enable_seqscan=off -c jit=off -c timezone=UTC",
        config.get_options().unwrap_or_default()
    );
    config.options(options.trim());
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
