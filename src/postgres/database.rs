//! Databases in the cluster. Ours is created at the first start.

use tokio_postgres::{Client, Config, Error, NoTls};

use super::DATABASE;

const ROLES: &str = include_str!("../store/sql/roles.sql");

/// Creates our database if it is missing.
pub(super) async fn ensure(maintenance: &Config) -> Result<(), Error> {
    with_client(maintenance, async |client| {
        let found = client
            .query_opt("-- postgres::database::ensure\nselect from pg_database where datname = $1", &[&DATABASE])
            .await?;
        match found {
            Some(_) => Ok(()),
            None => client.batch_execute(&format!("create database {DATABASE}")).await,
        }
    })
    .await
}

/// Whether our database contains no tables.
pub(super) async fn is_empty(config: &Config) -> Result<bool, Error> {
    with_client(config, async |client| {
        let select = "-- postgres::database::is_empty\nselect count(*) from pg_tables where schemaname = 'public'";
        let tables: i64 = client.query_one(select, &[]).await?.get(0);
        Ok(tables == 0)
    })
    .await
}

/// Creates the roles for row-level security, which a backup may reference.
pub(super) async fn make_roles(config: &Config) -> Result<(), Error> {
    with_client(config, async |client| client.batch_execute(ROLES).await).await
}

/// Whether the server accepts a connection and runs a statement.
pub(super) async fn answers(config: &Config) -> bool {
    with_client(config, async |client| client.batch_execute("select 1").await).await.is_ok()
}

/// Connects, runs `work`, and disconnects.
async fn with_client<T>(config: &Config, work: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let work = async {
        let client = client; // dropped after the work, which ends the connection
        work(&client).await
    };
    let (done, _) = tokio::join!(work, connection);
    done
}
