//! The schema: embedded forward-only migrations, one process at a time, and a refusal of schemas this program does not know.

use super::{Database, Error};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Held while migrating, so that replicas that start together wait for each other: `pg_advisory_lock` of these bytes.
const LOCK: i64 = 0x636f_6e74_6578_7464; // "contextd"

/// Brings the schema up to date and says how many migrations that took.
pub async fn run(database: &Database) -> Result<usize, Error> {
    let mut connection = database.connection().await?;
    // Migrations may take longer than a statement of the service may.
    connection
        .batch_execute("set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0")
        .await?;
    connection.execute("select pg_advisory_lock($1)", &[&LOCK]).await?;
    let applied = embedded::migrations::runner().run_async(&mut **connection as &mut tokio_postgres::Client).await;
    // The connection is not given back: its settings and its lock end with it.
    drop(deadpool_postgres::Object::take(connection));
    applied.map(|report| report.applied_migrations().len()).map_err(|error| Error::Schema(error.to_string()))
}

/// Refuses a schema that is not exactly the one this program was built for.
pub async fn check(database: &Database) -> Result<(), Error> {
    let wanted: Vec<_> = embedded::migrations::runner()
        .get_migrations()
        .iter()
        .map(|m| (m.version(), m.checksum().to_string()))
        .collect();
    let found = applied(database).await?;
    if let Some((version, _)) = found.iter().find(|row| !wanted.contains(row)) {
        return Err(Error::Schema(format!(
            "the database has migration {version}, which this version of contextd does not know or knows with other content: use the contextd that migrated it, or a newer one"
        )));
    }
    if let Some((version, _)) = wanted.iter().find(|row| !found.contains(row)) {
        return Err(Error::Schema(format!(
            "the database lacks migration {version}: run `contextd migrate`, or serve with --migrate"
        )));
    }
    Ok(())
}

async fn applied(database: &Database) -> Result<Vec<(i32, String)>, Error> {
    let exists = database
        .read("-- store::migrate::exists\nselect to_regclass('refinery_schema_history') is not null", &[])
        .await?;
    if !exists.first().is_some_and(|row| row.get(0)) {
        return Ok(Vec::new());
    }
    let rows = database
        .read("-- store::migrate::applied\nselect version, checksum from refinery_schema_history order by version", &[])
        .await?;
    rows.iter().map(|row| Ok((super::row::get(row, "version")?, super::row::get(row, "checksum")?))).collect()
}
