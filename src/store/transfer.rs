//! Whole sessions as lines of text, by which they are moved to another database, also from one of an older schema.
//!
//! A line is a row: its table, and its columns by their names as PostgreSQL writes them in JSON. What sessions of a tenant
//! share comes before them. A session begins with its hot row, and is filled in by one transaction. The last line says that the
//! file is whole: the rows of a session may end at any line.

mod filling;
mod rows;

use std::io;

use deadpool_postgres::{ClientWrapper, Object, Transaction};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_postgres::{IsolationLevel, types::ToSql};

pub use filling::{Filled, fill};

use super::{Database, Error, row::get};
use crate::model::{SessionId, TenantId};

/// The first line of a file.
const HEAD: &str = r#"{"contextd":"sessions","form":1}"#;
/// The last line of a file.
const END: &str = r#"{"contextd":"end"}"#;
/// Rows that PostgreSQL sends at a time.
const AT_A_TIME: i32 = 100;

/// Why sessions were not moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The database.
    #[error(transparent)]
    Database(#[from] Error),
    /// The file.
    #[error("the file: {0}")]
    File(#[from] io::Error),
    /// A line of the file is not what it should be. Sessions that were complete before it are in the database.
    #[error("line {line} of the file: {problem}")]
    Line {
        /// Which, the first is 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<tokio_postgres::Error> for TransferError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Which sessions are meant.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Those of this tenant. `None`: of all.
    pub tenant: Option<TenantId>,
    /// Those with these ids. Empty: all.
    pub sessions: Vec<SessionId>,
}

/// Writes sessions as they are at one moment, the deleted ones and forks that are being made left out. Returns how many.
/// The database may have an older schema.
pub async fn export(
    database: &Database,
    choice: &Choice,
    to: &mut (impl AsyncWrite + Unpin + Send),
) -> Result<u64, TransferError> {
    let mut client = patient(database).await?;
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
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

/// A connection of the owner of the schema, which sees all tenants, with the time that a large database takes.
async fn patient(database: &Database) -> Result<ClientWrapper, Error> {
    let client = Object::take(database.owner().await?);
    let settings = "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0";
    client.batch_execute(settings).await?;
    Ok(client)
}

struct Export<'a, W> {
    transaction: Transaction<'a>,
    is_older: bool,
    /// The sessions that are meant. Empty: all.
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
            let page = self.transaction.query_portal(&portal, AT_A_TIME).await?;
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
