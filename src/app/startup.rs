//! What a server waits for before it takes requests: its database, and the schema in it.

use std::time::{Duration, Instant};

use crate::{
    grpc::{
        gate::Gate,
        readiness::{Closed, Readiness},
    },
    store::{Database, Error, Outage, migrate},
    telemetry::progress::Progress,
};

/// How often the database is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the log repeats what is still being waited for.
const REMINDER: Duration = Duration::from_mins(1);

/// Waits until the database can be reached and its schema suits this program, which may be told to
/// migrate it. Meanwhile the gate and the log say what it waits for. It fails only on what waiting
/// cannot change.
pub(super) async fn prepared(
    database: &Database,
    migrate: bool,
    gate: &Gate,
    progress: &Progress,
) -> anyhow::Result<()> {
    if migrate {
        progress.step("bringing the schema up to date");
    }
    let mut told: Option<(Closed, Instant)> = None;
    loop {
        let (closed, detail) = match attempt(database, migrate, progress).await {
            Ok(migrate::Fit::Fits) => return Ok(()),
            Ok(migrate::Fit::Refused(why)) => anyhow::bail!(why),
            Ok(migrate::Fit::Lacks(version)) => {
                let problem = format!("the database lacks migration {version}");
                (
                    Closed::Schema(problem),
                    "it serves as soon as `contextd migrate` was run".to_owned(),
                )
            }
            Err(error @ Error::Outage(Outage::TransactionPooler, _)) => return Err(error.into()),
            Err(
                error @ (Error::Outage(
                    Outage::NoConnectionLeft | Outage::DiskFull | Outage::ServerBroken,
                    _,
                )
                | Error::Unavailable(_)
                | Error::Busy
                | Error::Conflict(_)),
            ) => (Closed::Database, error.to_string()),
            Err(
                error @ (Error::Refused(_)
                | Error::Duplicate(_)
                | Error::Schema(_)
                | Error::EventsExpired { .. }
                | Error::Corrupt(_)
                | Error::NoReach
                | Error::TenantDeleted(_)
                | Error::Broken(_)),
            ) => {
                return Err(error.into());
            }
        };
        if told
            .as_ref()
            .is_none_or(|(before, at)| *before != closed || at.elapsed() >= REMINDER)
        {
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
) -> Result<migrate::Fit, Error> {
    if migrate {
        apply_migrations(database, progress).await?;
    }
    migrate::fit(database).await
}

/// Brings the schema up to date.
pub(super) async fn run_migrations(database: &Database, progress: &Progress) -> Result<(), Error> {
    progress.step("bringing the schema up to date");
    apply_migrations(database, progress).await
}

async fn apply_migrations(database: &Database, progress: &Progress) -> Result<(), Error> {
    let applied = migrate::run(database).await?;
    if applied > 0 {
        progress.step(format!("applied {applied} migrations"));
    }
    Ok(())
}
