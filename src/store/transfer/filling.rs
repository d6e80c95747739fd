//! Fills a database with the sessions of a file.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::ClientWrapper;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use super::{END, HEAD, TransferError, patient, rows};
use crate::store::{Database, error::cause, row::get};

/// Rows that one statement adds.
const BATCH_ROWS: u64 = 500;
/// Bytes of such rows, beside the last one.
const BATCH_BYTES: usize = 1 << 20;

/// How many sessions of a file were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filled {
    /// Sessions that were added.
    pub added: u64,
    /// Sessions that were there already. They are as they were.
    pub skipped: u64,
}

/// A line of a file.
#[derive(Deserialize)]
struct Line<'a> {
    table: &'a str,
    #[serde(borrow)]
    row: &'a RawValue,
}

/// Adds the sessions of a file to a database of this program's schema. Each is added whole or not at all; one that is there already
/// stays as it is, so that a file can be tried again.
pub async fn fill(
    database: &Database,
    from: &mut (impl AsyncBufRead + Unpin + Send),
) -> Result<Filled, TransferError> {
    let client = patient(database).await?;
    let mut filling = Filling {
        columns: columns(&client).await?,
        client,
        doing: Doing::Nothing,
        batch: Batch::default(),
        filled: Filled::default(),
    };
    let mut lines = from.lines();
    let mut line = 1;
    if lines.next_line().await?.as_deref() != Some(HEAD) {
        let problem = "it is no file of sessions, or one of a newer contextd";
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
                let problem = "the file ends before its last line, `export` did not finish it";
                return Err(Wrong::Line(problem.to_owned()).at(line));
            }
        }
    }
}

/// The columns that can be filled, by table.
async fn columns(client: &ClientWrapper) -> Result<HashMap<String, Vec<String>>, TransferError> {
    const SQL: &str = "-- store::transfer::filling::columns
        select table_name::text, array_agg(column_name::text) as columns from information_schema.columns
         where table_schema = current_schema() and is_generated = 'NEVER' and is_identity = 'NO' group by 1";
    let tables = client.query(SQL, &[]).await?;
    let of_table = |row| Ok((get(row, "table_name")?, get(row, "columns")?));
    tables.iter().map(of_table).collect()
}

/// What a line leads to.
enum Wrong {
    /// It is not what it should be.
    Line(String),
    /// The database does not take it.
    Database(tokio_postgres::Error),
}

impl Wrong {
    fn at(self, line: u64) -> TransferError {
        match self {
            Self::Line(problem) => TransferError::Line { line, problem },
            Self::Database(error) if error.as_db_error().is_some() => TransferError::Line {
                line,
                problem: format!("a row up to here: {}", cause(&error)),
            },
            Self::Database(error) => error.into(),
        }
    }
}

impl From<tokio_postgres::Error> for Wrong {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

/// What the lines are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// What sessions share, or nothing yet.
    Nothing,
    /// A session, whose transaction is open.
    Session,
    /// A session that is there already.
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

struct Filling {
    client: ClientWrapper,
    columns: HashMap<String, Vec<String>>,
    doing: Doing,
    batch: Batch,
    filled: Filled,
}

impl Filling {
    async fn line(&mut self, text: &str) -> Result<(), Wrong> {
        let broken = |error: serde_json::Error| Wrong::Line(error.to_string());
        let Line { table, row } = serde_json::from_str(text).map_err(broken)?;
        let of = |tables: &[(&str, &str)]| tables.iter().any(|(known, _)| *known == table);
        let is_shared = of(&rows::OF_TENANT);
        if !is_shared && !of(&rows::OF_SESSION) {
            return Err(Wrong::Line(format!("there is no table {table} in it")));
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

    /// Begins a session with its hot row.
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

    /// Ends what the lines before were about.
    async fn end(&mut self) -> Result<(), Wrong> {
        self.write().await?;
        if self.doing == Doing::Session {
            self.client.batch_execute("commit").await?;
            self.filled.added += 1;
        }
        self.doing = Doing::Nothing;
        Ok(())
    }

    /// Writes the rows that were collected; how many were not there yet.
    async fn write(&mut self) -> Result<u64, Wrong> {
        let Batch {
            table,
            columns,
            rows: added,
            count,
        } = std::mem::take(&mut self.batch);
        if count == 0 {
            return Ok(0);
        }
        // The names are the catalog's.
        let columns = columns.iter().map(|name| format!("\"{name}\""));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!(
            "-- store::transfer::filling::write {table}
             insert into {table} ({columns}) select {columns} from jsonb_populate_recordset(null::{table}, $1::text::jsonb) on conflict do nothing"
        );
        let added = format!("[{added}]");
        let written = self.client.execute(&sql, &[&added]).await?;
        // What sessions share may be there, and a request of an earlier session with this id.
        let may_be_there = table == rows::HOT || table == "idempotency";
        if self.doing == Doing::Session && !may_be_there && written < count {
            return Err(Wrong::Line(format!("rows of {table} are there twice")));
        }
        Ok(written)
    }
}
