//! Disposable servers for tests. A cluster is created once and reused by later runs.

use std::fs;
use std::path::Path;

use super::cluster::remove_all;
use super::database;
use super::error::{Error, io};
use super::{Durability, Postgres, Settings};

/// How many test processes may run at the same time under one parent directory.
const SLOTS: u32 = 64;

impl Postgres {
    /// Starts a disposable server on the first cluster under `parent` that no other process uses.
    ///
    /// Databases of an earlier run are dropped; a cluster that does not start is created anew. Every ancestor of
    /// `parent` must be accessible to the user that PostgreSQL runs as. The cluster of `settings` is ignored.
    pub async fn scratch(parent: &Path, settings: Settings) -> Result<Self, Error> {
        fs::create_dir_all(parent).map_err(io("create", parent))?;
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
                    database::drop_others(&postgres.config("postgres")).await?;
                    return Ok(postgres);
                }
                Err(error) => return Err(error),
            }
        }
        Err(locked.unwrap_or_else(|| Error::NotACluster { data_dir: parent.into() }))
    }
}

async fn start_or_remake(settings: Settings) -> Result<Postgres, Error> {
    let data_dir = settings.cluster_dir.clone();
    match Postgres::start(settings.clone(), &|_| {}).await {
        Err(Error::Exited { .. } | Error::VersionMismatch { .. } | Error::WrongOwner { .. } | Error::Database(_)) => {
            remove_all(&data_dir)?;
            Postgres::start(settings, &|_| {}).await
        }
        other => other,
    }
}
