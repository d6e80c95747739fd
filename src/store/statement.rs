//! How statements reach a connection: under a name that it remembers, or, where a pooler gives each
//! transaction another connection, without one.

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

/// Words of which a statement that changes nothing has none.
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

/// Whether a statement changes nothing, so that no commit of it waits for anything. That it may have
/// changed something is assumed of every other text.
pub(super) fn only_reads(sql: &str) -> bool {
    let code = sql
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let mut words = code.flat_map(|line| {
        line.split(|char: char| !char.is_alphanumeric() && char != '_')
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
    });
    let is_query = words
        .next()
        .is_some_and(|first| ["select", "with", "values"].contains(&first.as_str()));
    is_query && !words.any(|word| WRITING.contains(&word.as_str()))
}

/// How statements are sent.
#[derive(Debug, Clone)]
pub(super) enum Statements {
    /// Each is prepared once for each connection, and planned there.
    Named,
    /// Each is sent whole each time. The types of its parameters are asked for once.
    Unnamed(Arc<Mutex<Known>>),
}

/// The types of the parameters of statements.
type Known = BTreeMap<&'static str, Arc<[Type]>>;

/// A statement that a connection can be sent.
#[derive(Debug)]
pub(super) enum Ready {
    /// It is prepared.
    Named(Statement),
    /// Its text, and the types of its parameters.
    Unnamed(&'static str, Arc<[Type]>),
}

impl Statements {
    /// Nothing is known yet.
    pub(super) fn unnamed() -> Self {
        Self::Unnamed(Arc::default())
    }

    /// Makes the statements of a transaction ready. Those that a connection meets for the first
    /// time take one round trip together; without names each takes one.
    pub(super) async fn all_ready(
        &self,
        connection: &Object,
        all: &[&'static str],
    ) -> Result<Vec<Ready>, Error> {
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

    /// Makes a statement ready. That takes a round trip when it is met for the first time.
    pub(super) async fn ready(
        &self,
        connection: &Object,
        sql: &'static str,
    ) -> Result<Ready, Error> {
        match self {
            Self::Named => Ok(Ready::Named(connection.prepare_cached(sql).await?)),
            Self::Unnamed(known) => {
                let found = known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get(sql)
                    .cloned();
                let types = match found {
                    Some(types) => types,
                    None => {
                        let types = ask(connection, sql).await?;
                        known
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .insert(sql, Arc::clone(&types));
                        types
                    }
                };
                Ok(Ready::Unnamed(sql, types))
            }
        }
    }
}

impl Ready {
    /// Sends it. The request is on its way once this was polled.
    pub(super) async fn query(
        &self,
        connection: &Object,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Named(statement) => Ok(connection.query(statement, params).await?),
            Self::Unnamed(sql, types) => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                Ok(connection.query_typed(sql, &typed).await?)
            }
        }
    }
}

impl Ready {
    /// How many bytes its parameters are as they are sent. One that cannot be encoded is none: sending
    /// it fails.
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

/// The types of a statement's parameters. It is prepared, looked at and closed within one
/// transaction, which a pooler leaves on one connection, and nothing else is prepared there. Where
/// another name is in the way nevertheless, as after a time without this setting, all are removed.
async fn ask(connection: &Object, sql: &'static str) -> Result<Arc<[Type]>, Error> {
    match ask_after(connection, "begin", sql).await {
        Err(Error::Outage(Outage::TransactionPooler, _)) => {
            ask_after(connection, "begin; deallocate all", sql).await
        }
        asked => asked,
    }
}

async fn ask_after(
    connection: &Object,
    begin: &str,
    sql: &'static str,
) -> Result<Arc<[Type]>, Error> {
    connection.batch_execute(begin).await?;
    let types = connection
        .prepare(sql)
        .await
        .map(|statement| statement.params().into());
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
        check(
            "-- store::a: not the insert\nwith a as (select 1) select * from a",
            true,
        );
        check("select updated_at from sessions", true);
        check("select 1 from sessions for update", false);
        check(
            "with a as (insert into b values (1) returning c) select c from a",
            false,
        );
        check(
            "-- store::listen::notify\nselect pg_notify('contextd', u.w) from u",
            false,
        );
        check("update a set b = 1", false);
        check("", false);
    }
}
