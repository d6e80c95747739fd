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
    types::{ToSql, Type},
};

use super::Error;

/// The value of a statement's parameter.
pub type Param<'a> = &'a (dyn ToSql + Sync);

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

/// The types of a statement's parameters. It is prepared, looked at and closed within one
/// transaction, which a pooler leaves on one connection. No other name is in the way: whoever
/// prepares there closes before the transaction ends.
async fn ask(connection: &Object, sql: &'static str) -> Result<Arc<[Type]>, Error> {
    connection.batch_execute("begin").await?;
    let types = connection
        .prepare(sql)
        .await
        .map(|statement| statement.params().into());
    connection.batch_execute("rollback").await?;
    Ok(types?)
}
