//! Imports the sessions of a file into a database.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::ClientWrapper;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use super::{END, HEAD, TransferError, rows};
use crate::store::{Database, error::cause, row::get};

/// Maximum number of rows that one statement inserts.
const BATCH_ROWS: u64 = 500;
/// Maximum size of these rows in bytes. The last one may exceed it.
const BATCH_BYTES: usize = 1 << 20;

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportSummary {
    /// Number of imported sessions.
    pub added: u64,
    /// Number of sessions that already existed. They are unchanged.
    pub skipped: u64,
}

/// A line of a file.
#[derive(Deserialize)]
struct Line<'a> {
    table: &'a str,
    #[serde(borrow)]
    row: &'a RawValue,
}

/// Imports the sessions of a file into a database with this program's schema. Each session is imported completely or
/// not at all. Existing sessions are unchanged, so an import can be repeated.
pub async fn import_sessions(
    database: &Database,
    from: &mut (impl AsyncBufRead + Unpin + Send),
) -> Result<ImportSummary, TransferError> {
    let client = database.owner_without_timeouts().await?;
    let mut filling = Importer {
        columns: columns(&client).await?,
        client,
        doing: Doing::Nothing,
        batch: Batch::default(),
        filled: ImportSummary::default(),
    };
    let mut lines = from.lines();
    let mut line = 1;
    if lines.next_line().await?.as_deref() != Some(HEAD) {
        let problem = "not a session export, or written by a newer version";
        return Err(Wrong::Line(problem.to_owned()).at(line));
    }
    loop {
        line += 1;
        match lines.next_line().await?.as_deref() {
            Some(END) => {
                filling.end().await.map_err(|wrong| wrong.at(line))?;
                return Ok(filling.filled);
            }
            Some(text) => filling.line(text).await.map_err(|wrong| wrong.at(line))?,
            None => {
                let problem = "the file ends before its last line: the export did not finish";
                return Err(Wrong::Line(problem.to_owned()).at(line));
            }
        }
    }
}

/// The columns that can be set, by table.
async fn columns(client: &ClientWrapper) -> Result<HashMap<String, Vec<String>>, TransferError> {
    const SQL: &str = "-- store::transfer::filling::columns
        select table_name::text, array_agg(column_name::text) as columns from information_schema.columns
         where table_schema = current_schema() and is_generated = 'NEVER' and is_identity = 'NO' group by 1";
    let tables = client.query(SQL, &[]).await?;
    let of_table = |row| Ok((get(row, "table_name")?, get(row, "columns")?));
    tables.iter().map(of_table).collect()
}

/// Why a line failed.
enum Wrong {
    /// The line is invalid.
    Line(String),
    /// The database rejected it.
    Database(tokio_postgres::Error),
}

impl Wrong {
    fn at(self, line: u64) -> TransferError {
        match self {
            Self::Line(problem) => TransferError::Line { line, problem },
            Self::Database(error) if error.as_db_error().is_some() => {
                TransferError::Line { line, problem: format!("a row at or before this line: {}", cause(&error)) }
            }
            Self::Database(error) => error.into(),
        }
    }
}

impl From<tokio_postgres::Error> for Wrong {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

/// The context of the current lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Rows that sessions share, or no rows yet.
    Nothing,
    /// A session whose transaction is open.
    Session,
    /// A session that already exists.
    Skipped,
}

/// Rows of one table with the same columns.
#[derive(Default)]
struct Batch {
    table: String,
    columns: Vec<String>,
    /// The rows as elements of a JSON array.
    rows: String,
    count: u64,
}

struct Importer {
    client: ClientWrapper,
    columns: HashMap<String, Vec<String>>,
    doing: Doing,
    batch: Batch,
    filled: ImportSummary,
}

impl Importer {
    async fn line(&mut self, text: &str) -> Result<(), Wrong> {
        let broken = |error: serde_json::Error| Wrong::Line(error.to_string());
        let Line { table, row } = serde_json::from_str(text).map_err(broken)?;
        let of = |tables: &[(&str, &str)]| tables.iter().any(|(known, _)| *known == table);
        let is_shared = of(&rows::OF_TENANT);
        if !is_shared && !of(&rows::OF_SESSION) {
            return Err(Wrong::Line(format!("unknown table {table}")));
        }
        if is_shared && self.doing != Doing::Nothing || table == rows::HOT {
            self.end().await?;
        }
        if self.doing == Doing::Skipped {
            return Ok(());
        }
        let known = self.columns.get(table).map_or(&[][..], Vec::as_slice);
        let given: BTreeMap<&str, &RawValue> = serde_json::from_str(row.get()).map_err(broken)?;
        let given = given.iter().filter(|(_, value)| value.get() != "null");
        let columns = given.filter_map(|(name, _)| known.iter().find(|known| known == name));
        let columns: Vec<String> = columns.cloned().collect();
        let fits = self.batch.table == table
            && self.batch.columns == columns
            && self.batch.count < BATCH_ROWS
            && self.batch.rows.len() < BATCH_BYTES;
        if !fits {
            self.write().await?;
            table.clone_into(&mut self.batch.table);
            self.batch.columns = columns;
        }
        if self.batch.count > 0 {
            self.batch.rows.push(',');
        }
        self.batch.rows.push_str(row.get());
        self.batch.count += 1;
        if table == rows::HOT {
            self.begin().await?;
        }
        Ok(())
    }

    /// Begins a session with its session row.
    async fn begin(&mut self) -> Result<(), Wrong> {
        self.client.batch_execute("begin").await?;
        self.doing = Doing::Session;
        if self.write().await? == 0 {
            self.client.batch_execute("rollback").await?;
            self.doing = Doing::Skipped;
            self.filled.skipped += 1;
        }
        Ok(())
    }

    /// Ends the current session, if there is one.
    async fn end(&mut self) -> Result<(), Wrong> {
        self.write().await?;
        if self.doing == Doing::Session {
            self.client.batch_execute("commit").await?;
            self.filled.added += 1;
        }
        self.doing = Doing::Nothing;
        Ok(())
    }

    /// Inserts the collected rows. Returns the number of rows that did not exist.
    async fn write(&mut self) -> Result<u64, Wrong> {
        let Batch { table, columns, rows: added, count } = std::mem::take(&mut self.batch);
        if count == 0 {
            return Ok(0);
        }
        // The names come from the database catalog.
        let columns = columns.iter().map(|name| format!("\"{name}\""));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!(
            "-- store::transfer::filling::write {table}
             insert into {table} ({columns}) select {columns} from jsonb_populate_recordset(null::{table}, $1::text::jsonb) on conflict do nothing"
        );
        let added = format!("[{added}]");
        let written = self.client.execute(&sql, &[&added]).await?;
        // Shared rows may exist already, and so may a request of an earlier session with this id.
        let may_be_there = table == rows::HOT || table == "idempotency";
        if self.doing == Doing::Session && !may_be_there && written < count {
            return Err(Wrong::Line(format!("duplicate rows of {table}")));
        }
        Ok(written)
    }
}
