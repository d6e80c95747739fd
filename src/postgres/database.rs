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

/// Drops every database except PostgreSQL's own and ours.
pub(super) async fn drop_others(maintenance: &Config) -> Result<(), Error> {
    with_client(maintenance, async |client| {
        let select = "-- postgres::database::drop_others\nselect format('%I', datname) from pg_database
                      where datname not in ('postgres', 'template0', 'template1', $1)";
        for row in client.query(select, &[&DATABASE]).await? {
            let name: String = row.get(0);
            client.batch_execute(&format!("alter database {name} is_template false")).await?;
            client.batch_execute(&format!("drop database {name} with (force)")).await?;
        }
        Ok(())
    })
    .await
}

/// Whether our database contains no tables.
pub(super) async fn is_empty(config: &Config) -> Result<bool, Error> {
    let mut tables: i64 = 0;
    with_client(config, async |client| {
        let select = "-- postgres::database::is_empty\nselect count(*) from pg_tables where schemaname = 'public'";
        tables = client.query_one(select, &[]).await?.get(0);
        Ok(())
    })
    .await?;
    Ok(tables == 0)
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
async fn with_client(config: &Config, work: impl AsyncFnOnce(&Client) -> Result<(), Error>) -> Result<(), Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let work = async {
        let client = client; // dropped after the work, which ends the connection
        work(&client).await
    };
    let (done, _) = tokio::join!(work, connection);
    done
}
