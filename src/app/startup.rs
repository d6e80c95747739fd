//! Waits at startup for the database and its schema.

use std::time::{Duration, Instant};

use crate::{
    grpc::{
        gate::Gate,
        readiness::{ClosedReason, Readiness},
    },
    store::{Database, Error, Outage, migrate},
    telemetry::progress::Progress,
};

/// How often the database is retried.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the log repeats what the server is waiting for.
const REMINDER: Duration = Duration::from_mins(1);

/// Waits until the database is reachable and its schema fits this program, and migrates it first if `migrate`
/// is true. The gate and the log report the reason for waiting. Returns an error only for problems that
/// waiting cannot solve.
pub(super) async fn wait_for_database(
    database: &Database,
    migrate: bool,
    gate: &Gate,
    progress: &Progress,
) -> anyhow::Result<()> {
    if migrate {
        progress.step("migrating the schema");
    }
    let mut told: Option<(ClosedReason, Instant)> = None;
    loop {
        let (closed, detail) = match attempt(database, migrate, progress).await {
            Ok(migrate::SchemaCompatibility::Fits) => return Ok(()),
            Ok(migrate::SchemaCompatibility::Refused(why)) => anyhow::bail!(why),
            Ok(migrate::SchemaCompatibility::MissingMigration(version)) => {
                let problem = format!("the database lacks migration {version}");
                (
                    ClosedReason::Schema(problem),
                    "run `contextd migrate`; the server starts serving afterwards".to_owned(),
                )
            }
            Err(error @ Error::Outage(Outage::TransactionPooler, _)) => return Err(error.into()),
            Err(
                error @ (Error::Outage(Outage::NoConnectionLeft | Outage::DiskFull | Outage::ServerBroken, _)
                | Error::Unavailable(_)
                | Error::Busy
                | Error::Conflict(_)),
            ) => (ClosedReason::Database, error.to_string()),
            Err(
                error @ (Error::Refused(_)
                | Error::Duplicate(_)
                | Error::Schema(_)
                | Error::EventsExpired { .. }
                | Error::Corrupt(_)
                | Error::NoRowSecurityScope
                | Error::TenantDeleted(_)
                | Error::Broken(_)),
            ) => {
                return Err(error.into());
            }
        };
        if told.as_ref().is_none_or(|(before, at)| *before != closed || at.elapsed() >= REMINDER) {
            gate.set(Readiness::Closed(closed.clone()));
            tracing::warn!("not ready: {closed}: {detail}");
            told = Some((closed, Instant::now()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attempt(
    database: &Database,
    migrate: bool,
    progress: &Progress,
) -> Result<migrate::SchemaCompatibility, Error> {
    if migrate {
        apply_migrations(database, progress).await?;
    }
    migrate::check_compatibility(database).await
}

/// Migrates the schema to the newest version.
pub(super) async fn run_migrations(database: &Database, progress: &Progress) -> Result<(), Error> {
    progress.step("migrating the schema");
    apply_migrations(database, progress).await
}

async fn apply_migrations(database: &Database, progress: &Progress) -> Result<(), Error> {
    let applied = migrate::run(database).await?;
    if applied > 0 {
        progress.step(format!("applied {applied} migrations"));
    }
    Ok(())
}
