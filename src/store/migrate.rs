//! The schema: embedded forward-only migrations, applied by one process at a time, and the check that this program can
//! work with a schema.
//!
//! The files, checksums and history table are those of refinery. The migrations are applied by this module, because
//! refinery runs every file in a transaction, waits for locks without a limit, and rejects a history with migrations
//! that it does not have.

mod file;

use std::time::{Duration, Instant};

use refinery::Migration;
use tokio_postgres::{Client, GenericClient};

use self::file::{File, Mode};
use super::{Database, Error, Outage, error::cause};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Held while migrating, so that replicas that start together wait for each other. These bytes are the key of
/// `pg_advisory_lock`.
const LOCK: i64 = 0x636f_6e74_6578_7464; // "contextd"
/// Polling interval for the lock. A statement that waits for the lock would hold a snapshot, and building an index
/// concurrently waits for the end of every older snapshot.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a migration waits for one lock. Statements on that table queue up for the same time.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after the first attempt that did not get its locks. Doubled after each further attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The maximum pause. Statements run without delay during it.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long attempts to get the locks of one migration continue.
const LOCK_RETRY_TIMEOUT: Duration = Duration::from_mins(10);

/// The history: refinery's table, with an additional column for the oldest program.
const HISTORY: &str = "create table if not exists refinery_schema_history (
  version int4 primary key, name varchar(255), applied_on varchar(255), checksum varchar(255), oldest_program int4)";
const EXISTS: &str = "-- store::migrate::exists
select to_regclass('refinery_schema_history') is not null";
/// The time has the format that refinery reads.
const RECORD: &str = r#"insert into refinery_schema_history (version, name, applied_on, checksum, oldest_program)
  values ($1, $2, to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), $3, $4)"#;
const ROLES: &str = include_str!("sql/roles.sql");
const PROTECT: &str = include_str!("sql/row_security.sql");
/// Reads the history, including that of an older schema without the column for the oldest program.
const APPLIED: &str = "-- store::migrate::applied
select version, checksum, (to_jsonb(h) ->> 'oldest_program')::int4 as oldest_program from refinery_schema_history h order by version";

/// Instructions for a database with an older schema.
const MOVE: &str = "Move its sessions: `contextd admin export` writes them to a file, `contextd admin import` adds them to an empty database";

/// Whether a schema is compatible with this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaCompatibility {
    /// Compatible: the schema of this program, or a newer one that supports it.
    Fits,
    /// This migration is missing.
    MissingMigration(i32),
    /// This program must not use it. Contains the reason.
    Refused(String),
}

/// Returns the number of the newest migration of this program.
pub fn newest() -> i32 {
    let all = embedded::migrations::runner();
    let numbers = all.get_migrations().iter().map(Migration::version);
    numbers.max().unwrap_or_default()
}

/// Brings the schema up to date and returns the number of applied migrations; 0 if the schema is newer and compatible.
/// An attempt that does not get its locks in time is repeated for some minutes.
pub async fn run(database: &Database) -> Result<usize, Error> {
    run_files(database, known(&[])?).await
}

/// Like [`run`], with additional migrations for tests: file names without `.sql`, and contents.
#[doc(hidden)]
pub async fn run_with(database: &Database, more: &[(&str, &str)]) -> Result<usize, Error> {
    run_files(database, known(more)?).await
}

async fn run_files(database: &Database, known: Vec<File>) -> Result<usize, Error> {
    // Migrations may take longer than a statement of the service may.
    let mut client = database.owner_without_timeouts().await?;
    lock(&client).await?;
    if !client.query_one(EXISTS, &[]).await?.get::<_, bool>(0) {
        run_with_lock_retries(&mut client, &Step::History).await?;
    }
    let pending = pending(known, &applied(&client.query(APPLIED, &[]).await?)?).map_err(Error::Schema)?;
    let count = pending.len();
    for file in pending {
        tracing::info!("applying migration {} ({})", file.version, file.name);
        run_with_lock_retries(&mut client, &Step::Apply(file)).await?;
    }
    if database.has_row_security() {
        run_with_lock_retries(&mut client, &Step::Protect).await?;
    }
    Ok(count)
}

/// Checks whether the schema is compatible with this program.
pub async fn check_compatibility(database: &Database) -> Result<SchemaCompatibility, Error> {
    if !database.has_its_settings().await? {
        let ignored = "the settings of connections are ignored".to_owned();
        return Err(Error::Outage(Outage::TransactionPooler, ignored));
    }
    let exists = database.read(EXISTS, &[]).await?;
    let found = match exists.first().is_some_and(|row| row.get(0)) {
        true => applied(&database.read(APPLIED, &[]).await?)?,
        false => Vec::new(),
    };
    Ok(match pending(known(&[])?, &found) {
        Err(why) => SchemaCompatibility::Refused(why),
        Ok(pending) => pending
            .first()
            .map_or(SchemaCompatibility::Fits, |file| SchemaCompatibility::MissingMigration(file.version)),
    })
}

/// A migration that was applied to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied {
    version: i32,
    checksum: String,
    /// `None` if it was applied by a program that did not record this.
    oldest_program: Option<i32>,
}

fn applied(rows: &[tokio_postgres::Row]) -> Result<Vec<Applied>, Error> {
    let row = |row| {
        Ok(Applied {
            version: super::row::get(row, "version")?,
            checksum: super::row::get(row, "checksum")?,
            oldest_program: super::row::get(row, "oldest_program")?,
        })
    };
    rows.iter().map(row).collect()
}

/// The migrations of this program and additional ones, in order.
fn known(more: &[(&str, &str)]) -> Result<Vec<File>, Error> {
    let more = more.iter().map(|(name, sql)| Migration::unapplied(name, sql)).collect::<Result<Vec<_>, _>>();
    let more = more.map_err(|error| Error::Schema(error.to_string()))?;
    let all = embedded::migrations::runner();
    let mut files: Vec<File> = all
        .get_migrations()
        .iter()
        .chain(&more)
        .map(|migration| File::read(migration).map_err(Error::Schema))
        .collect::<Result<_, _>>()?;
    files.sort_by_key(|file| file.version);
    Ok(files)
}

/// The migrations to apply. Fails with the reason if this program must not use this schema.
fn pending(known: Vec<File>, found: &[Applied]) -> Result<Vec<File>, String> {
    let newest = known.last().map_or(0, |file| file.version);
    for Applied { version, checksum, oldest_program } in found {
        match (known.iter().find(|file| file.version == *version), oldest_program) {
            (Some(file), _) if file.checksum == *checksum => {}
            (Some(_), _) => {
                return Err(format!(
                    "the database has the schema of an older contextd: migration {version} has a different checksum. {MOVE}"
                ));
            }
            (None, Some(oldest)) if *oldest <= newest => {}
            (None, Some(oldest)) => {
                return Err(format!(
                    "the database has migration {version}, which requires a contextd with migration {oldest} or later; this one has {newest}: use a newer contextd"
                ));
            }
            (None, None) => {
                return Err(format!(
                    "the database has migration {version}, which this version of contextd does not know and which does not record the oldest compatible contextd: use the contextd that migrated it, or a newer one"
                ));
            }
        }
    }
    let reached = found.iter().map(|row| row.version).max().unwrap_or(0);
    let pending: Vec<File> =
        known.into_iter().filter(|file| !found.iter().any(|row| row.version == file.version)).collect();
    match pending.iter().find(|file| file.version < reached) {
        None => Ok(pending),
        Some(File { version, .. }) => Err(format!(
            "the database lacks migration {version} although it has migration {reached}: it was migrated by an unreleased contextd"
        )),
    }
}

/// Waits until no other process migrates. The lock ends with the connection.
async fn lock(client: &Client) -> Result<(), Error> {
    let mut told = false;
    while !client.query_one("select pg_try_advisory_lock($1)", &[&LOCK]).await?.get::<_, bool>(0) {
        if !told {
            tracing::info!("another process is migrating this database; waiting for it");
            told = true;
        }
        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
    }
    Ok(())
}

/// A step that is done at once.
enum Step {
    /// Create the history table.
    History,
    /// Apply a migration and record it.
    Apply(File),
    /// Enable row security on each table.
    Protect,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::History => f.write_str("the migration history table"),
            Self::Apply(file) => write!(f, "migration {} ({})", file.version, file.name),
            Self::Protect => f.write_str("row security"),
        }
    }
}

/// Repeats a step that did not get its locks in time or was aborted by a deadlock.
async fn run_with_lock_retries(client: &mut Client, step: &Step) -> Result<(), Error> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let attempt = match step {
            Step::History => in_transaction(client, &[HISTORY], None).await,
            Step::Protect => in_transaction(client, &[ROLES, PROTECT], None).await,
            Step::Apply(file) => match file.mode {
                Mode::Transaction => in_transaction(client, &[&file.sql], Some(file)).await,
                Mode::CreateIndex(_) | Mode::DropIndex => on_its_own(client, file).await,
            },
        };
        let Err(error) = attempt else { return Ok(()) };
        let problem = cause(&error);
        match Error::from(error) {
            Error::Conflict(_) if begun.elapsed() < LOCK_RETRY_TIMEOUT => {
                tracing::warn!("{step} is waiting for a lock held by a longer transaction, such as a dump: {problem}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            Error::Conflict(_) => {
                return Err(Error::Schema(format!(
                    "{step} did not get its locks within {} minutes: {problem}. End the transaction that holds them, and migrate again",
                    LOCK_RETRY_TIMEOUT.as_secs() / 60
                )));
            }
            Error::Unavailable(problem) | Error::Refused(problem) => {
                return Err(Error::Unavailable(problem));
            }
            error @ Error::Outage(..) => return Err(error),
            Error::Busy
            | Error::Duplicate(_)
            | Error::Schema(_)
            | Error::EventsExpired { .. }
            | Error::Corrupt(_)
            | Error::NoRowSecurityScope
            | Error::TenantDeleted(_)
            | Error::Broken(_) => {
                return Err(Error::Schema(format!("{step} failed: {problem}")));
            }
        }
    }
}

/// Runs statements in one transaction, which also records the migration if there is one. Each wait for a lock is limited.
async fn in_transaction(
    client: &mut Client,
    statements: &[&str],
    migration: Option<&File>,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("set local lock_timeout = {}", LOCK_TIMEOUT.as_millis())).await?;
    for statement in statements {
        transaction.batch_execute(statement).await?;
    }
    if let Some(file) = migration {
        record(&transaction, file).await?;
    }
    transaction.commit().await
}

/// Runs a single repeatable statement and then records it. An invalid index left by a failed attempt is removed first.
/// The lock it waits for does not block statements of the service, so the wait is not limited and may last as long as a
/// dump.
async fn on_its_own(client: &Client, file: &File) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("set lock_timeout = 0").await?;
    if let Mode::CreateIndex(index) = &file.mode {
        let invalid = "select 1 from pg_index where indexrelid = to_regclass($1) and not indisvalid";
        if client.query_opt(invalid, &[index]).await?.is_some() {
            tracing::info!("removing the unfinished index of a failed attempt: {index}");
            client.batch_execute(&format!("drop index concurrently if exists {index}")).await?;
        }
    }
    client.batch_execute(&file.sql).await?;
    record(client, file).await
}

async fn record(client: &impl GenericClient, file: &File) -> Result<(), tokio_postgres::Error> {
    client.execute(RECORD, &[&file.version, &file.name, &file.checksum, &file.oldest_program]).await.map(drop)
}

#[cfg(test)]
mod tests;
