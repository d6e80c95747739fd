//! How statements are sent on a connection: as named prepared statements, or unnamed if a pooler assigns a connection
//! per transaction.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use deadpool_postgres::Object;
use futures_util::future::try_join_all;
use tokio_postgres::{
    Row, Statement,
    types::{ToSql, Type, private::BytesMut},
};

use super::{Error, Outage};

/// The value of a statement's parameter.
pub type Param<'a> = &'a (dyn ToSql + Sync);

/// Keywords that do not occur in a read-only statement.
const WRITING: [&str; 12] = [
    "insert",
    "update",
    "delete",
    "merge",
    "truncate",
    "lock",
    "nextval",
    "setval",
    "pg_notify",
    "call",
    "copy",
    "into",
];

/// Prefix of the names of the functions that write commits.
const COMMITS: &str = "contextd_commit_";

/// Whether a statement changes nothing, so that its commit does not wait for a standby. Any statement not known to be
/// read-only is assumed to write.
pub(super) fn only_reads(sql: &str) -> bool {
    let code = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let mut words = code.flat_map(|line| {
        line.split(|char: char| !char.is_alphanumeric() && char != '_')
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
    });
    let is_query = words.next().is_some_and(|first| ["select", "with", "values"].contains(&first.as_str()));
    is_query && !words.any(|word| word.starts_with(COMMITS) || WRITING.contains(&word.as_str()))
}

/// How statements are sent.
#[derive(Debug, Clone)]
pub(super) enum Statements {
    /// Each statement is prepared and planned once per connection.
    Named,
    /// Each statement is sent as text each time. The types of its parameters are read once.
    Unnamed(Arc<Mutex<Known>>),
}

/// The parameter types of statements.
type Known = BTreeMap<&'static str, Arc<[Type]>>;

/// A statement that is ready to be sent on a connection.
#[derive(Debug)]
pub(super) enum PreparedStatement {
    Named(Statement),
    /// The text and the parameter types.
    Unnamed(&'static str, Arc<[Type]>),
}

impl Statements {
    /// Creates an empty cache of parameter types.
    pub(super) fn unnamed() -> Self {
        Self::Unnamed(Arc::default())
    }

    /// Prepares the statements of a transaction. Those that are new to the connection take one round trip together;
    /// unnamed statements take one each.
    pub(super) async fn all_ready(
        &self,
        connection: &Object,
        all: &[&'static str],
    ) -> Result<Vec<PreparedStatement>, Error> {
        match self {
            Self::Named => try_join_all(all.iter().map(|sql| self.ready(connection, sql))).await,
            Self::Unnamed(_) => {
                let mut ready = Vec::with_capacity(all.len());
                for sql in all {
                    ready.push(self.ready(connection, sql).await?);
                }
                Ok(ready)
            }
        }
    }

    /// Prepares a statement. Takes a round trip the first time.
    pub(super) async fn ready(&self, connection: &Object, sql: &'static str) -> Result<PreparedStatement, Error> {
        match self {
            Self::Named => Ok(PreparedStatement::Named(connection.prepare_cached(sql).await?)),
            Self::Unnamed(known) => {
                let found = known.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
                let types = match found {
                    Some(types) => types,
                    None => {
                        let types = read_types(connection, sql).await?;
                        known.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, Arc::clone(&types));
                        types
                    }
                };
                Ok(PreparedStatement::Unnamed(sql, types))
            }
        }
    }
}

impl PreparedStatement {
    /// Sends it. The request is sent when the future is first polled.
    pub(super) async fn query(&self, connection: &Object, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        match self {
            Self::Named(statement) => Ok(connection.query(statement, params).await?),
            Self::Unnamed(sql, types) => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                Ok(connection.query_typed(sql, &typed).await?)
            }
        }
    }

    /// Size in bytes of its encoded parameters. A parameter that cannot be encoded counts as 0: sending it fails.
    pub(super) fn bytes(&self, params: &[Param<'_>]) -> i64 {
        let types = match self {
            Self::Named(statement) => statement.params(),
            Self::Unnamed(_, types) => types,
        };
        let mut encoded = BytesMut::new();
        let mut all = 0;
        for (param, kind) in params.iter().zip(types) {
            encoded.clear();
            if param.to_sql_checked(kind, &mut encoded).is_ok() {
                all += encoded.len();
            }
        }
        i64::try_from(all).unwrap_or(i64::MAX)
    }
}

/// Reads the types of a statement's parameters. The statement is prepared, described and closed in one transaction,
/// which a pooler keeps on one connection, and nothing else is prepared there. If a prepared statement with the same
/// name exists nevertheless, as after a period without this setting, all prepared statements are deallocated.
async fn read_types(connection: &Object, sql: &'static str) -> Result<Arc<[Type]>, Error> {
    match ask_after(connection, "begin", sql).await {
        Err(Error::Outage(Outage::TransactionPooler, _)) => ask_after(connection, "begin; deallocate all", sql).await,
        asked => asked,
    }
}

async fn ask_after(connection: &Object, begin: &str, sql: &'static str) -> Result<Arc<[Type]>, Error> {
    connection.batch_execute(begin).await?;
    let types = connection.prepare(sql).await.map(|statement| statement.params().into());
    connection.batch_execute("rollback").await?;
    Ok(types?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_only_reads_if_no_word_of_it_can_change_anything() {
        let check = |sql: &str, expected| assert_eq!(only_reads(sql), expected, "{sql}");
        check("-- store::ping\nselect 1", true);
        check("-- store::a: not the insert\nwith a as (select 1) select * from a", true);
        check("select updated_at from sessions", true);
        check("select 1 from sessions for update", false);
        check("with a as (insert into b values (1) returning c) select c from a", false);
        check("-- store::listen::notify\nselect pg_notify('contextd', u.w) from u", false);
        check("select * from contextd_commit_2($1)", false);
        check("update a set b = 1", false);
        check("", false);
    }
}
