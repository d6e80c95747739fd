//! Disposable PostgreSQL servers. A cluster is created once and reused by later runs.

use std::{fs, io::ErrorKind, path::Path};

use contextd::postgres::{DATABASE, Durability, Error, Postgres, Settings};
use tokio_postgres::{Config, NoTls};

/// How many test processes may run at the same time under one parent directory.
const SLOTS: u32 = 64;

/// Starts a disposable server on the first cluster under `parent` that no other process uses.
///
/// Databases of an earlier run are dropped; a cluster that does not start is created anew. Every ancestor of `parent`
/// must be accessible to the user that PostgreSQL runs as. The cluster of `settings` is ignored.
pub async fn scratch(parent: &Path, settings: Settings) -> Result<Postgres, Error> {
    fs::create_dir_all(parent).unwrap();
    let mut locked = None;
    for slot in 0..SLOTS {
        let settings = Settings {
            cluster_dir: parent.join(format!("postgres-{slot}")),
            durability: Durability::Disposable,
            ..settings.clone()
        };
        match start_or_remake(settings).await {
            Err(error @ Error::Locked { .. }) => locked = Some(error),
            Ok(postgres) => {
                drop_others(&postgres.config("postgres")).await?;
                return Ok(postgres);
            }
            Err(error) => return Err(error),
        }
    }
    Err(locked.unwrap_or_else(|| Error::NotACluster { data_dir: parent.into() }))
}

async fn start_or_remake(settings: Settings) -> Result<Postgres, Error> {
    let data_dir = settings.cluster_dir.clone();
    match Postgres::start(settings.clone(), &|_| {}).await {
        Err(Error::Exited { .. } | Error::VersionMismatch { .. } | Error::WrongOwner { .. } | Error::Database(_)) => {
            match fs::remove_dir_all(&data_dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", data_dir.display()),
                Ok(()) | Err(_) => Postgres::start(settings, &|_| {}).await,
            }
        }
        other => other,
    }
}

/// Drops every database except PostgreSQL's own and ours.
async fn drop_others(maintenance: &Config) -> Result<(), Error> {
    let (client, connection) = maintenance.connect(NoTls).await?;
    let connection = tokio::spawn(connection);
    let select = "select format('%I', datname) from pg_database
                  where datname not in ('postgres', 'template0', 'template1', $1)";
    for row in client.query(select, &[&DATABASE]).await? {
        let name: String = row.get(0);
        client.batch_execute(&format!("alter database {name} is_template false")).await?;
        client.batch_execute(&format!("drop database {name} with (force)")).await?;
    }
    drop(client);
    connection.await.unwrap()?;
    Ok(())
}
