//! Exports whole sessions as lines of text and imports them into another database. The exported database may have an
//! older schema.
//!
//! Each line is a row: its table, and its columns by name in PostgreSQL's JSON format. Rows that sessions of a tenant
//! share come first. A session begins with its session row and is imported in one transaction. The last line marks the
//! file as complete, because a truncated file could end after any row of a session.

mod importer;
mod rows;

use std::io;

use deadpool_postgres::Transaction;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_postgres::{IsolationLevel, types::ToSql};

pub use importer::{ImportSummary, import_sessions};

use super::{Database, Error, row::get};
use crate::model::{SessionId, TenantId};

/// The first line of a file.
const HEAD: &str = r#"{"contextd":"sessions","form":1}"#;
/// The last line of a file.
const END: &str = r#"{"contextd":"end"}"#;
/// Number of rows that are fetched at a time.
const FETCH_ROWS: i32 = 100;

/// Why an export or import failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Database(#[from] Error),
    #[error("cannot read or write the file: {0}")]
    File(#[from] io::Error),
    /// A line of the file is invalid. The sessions that were complete before this line are in the database.
    #[error("line {line} of the file: {problem}")]
    Line {
        /// Line number, from 1.
        line: u64,
        problem: String,
    },
}

impl From<tokio_postgres::Error> for TransferError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Selects sessions.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Only sessions of this tenant. `None` for all tenants.
    pub tenant: Option<TenantId>,
    /// Only sessions with these ids. Empty for all.
    pub sessions: Vec<SessionId>,
}

/// Writes sessions in one snapshot, except deleted ones and incomplete forks. Returns the number of sessions. The
/// database may have an older schema.
pub async fn export(
    database: &Database,
    choice: &Choice,
    to: &mut (impl AsyncWrite + Unpin + Send),
) -> Result<u64, TransferError> {
    let mut client = database.owner_without_timeouts().await?;
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
    to.write_all(HEAD.as_bytes()).await?;
    let mut export = Export {
        is_older: transaction.query_one(rows::IS_OLDER, &[]).await?.get(0),
        ids: choice.sessions.iter().map(SessionId::as_str).collect(),
        transaction,
        to,
        sessions: 0,
    };
    let chosen = choice.tenant.as_ref().map(TenantId::as_str);
    let values: [&(dyn ToSql + Sync); 2] = [&chosen, &export.ids];
    for row in export.transaction.query(rows::TENANTS, &values).await? {
        export.tenant(get(&row, "tenant_id")?).await?;
    }
    let Export { sessions, to, .. } = export;
    to.write_all(format!("\n{END}\n").as_bytes()).await?;
    to.flush().await?;
    Ok(sessions)
}

struct Export<'a, W> {
    transaction: Transaction<'a>,
    is_older: bool,
    /// The selected sessions. Empty for all.
    ids: Vec<&'a str>,
    to: &'a mut W,
    sessions: u64,
}

impl<W: AsyncWrite + Unpin + Send> Export<'_, W> {
    async fn tenant(&mut self, tenant: &str) -> Result<(), TransferError> {
        for (table, sql) in rows::OF_TENANT {
            self.rows(table, sql, (tenant, None)).await?;
        }
        let mut last = String::new();
        loop {
            let values: [&(dyn ToSql + Sync); 3] = [&tenant, &last, &self.ids];
            let page = self.transaction.query(rows::SESSIONS, &values).await?;
            let Some(newest) = page.last() else {
                return Ok(());
            };
            last = get(newest, "session_id")?;
            for row in &page {
                self.session(tenant, get(row, "session_id")?).await?;
            }
        }
    }

    async fn session(&mut self, tenant: &str, session: &str) -> Result<(), TransferError> {
        for (table, sql) in rows::OF_SESSION {
            let sql = match self.is_older {
                true => rows::of_older(table).unwrap_or(sql),
                false => sql,
            };
            self.rows(table, sql, (tenant, Some(session))).await?;
        }
        self.sessions += 1;
        Ok(())
    }

    async fn rows(
        &mut self,
        table: &str,
        sql: &str,
        (tenant, session): (&str, Option<&str>),
    ) -> Result<(), TransferError> {
        let portal = match session {
            Some(session) => self.transaction.bind(sql, &[&tenant, &session]).await?,
            None => self.transaction.bind(sql, &[&tenant, &self.ids]).await?,
        };
        loop {
            let page = self.transaction.query_portal(&portal, FETCH_ROWS).await?;
            if page.is_empty() {
                return Ok(());
            }
            for row in &page {
                let columns: &str = get(row, "columns")?;
                let line = format!("\n{{\"table\":\"{table}\",\"row\":{columns}}}");
                self.to.write_all(line.as_bytes()).await?;
            }
        }
    }
}
