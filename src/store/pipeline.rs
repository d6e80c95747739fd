//! Transactions in one round trip: BEGIN, the statements and COMMIT are sent together, and the
//! answers are read after.

use std::{
    future::{Future as _, poll_fn},
    task::Poll,
    time::Duration,
};

use deadpool_postgres::Object;
use futures_util::future::{join_all, join3, maybe_done};
use tokio_postgres::Row;

use super::{Database, Error, pool::Doing, statement::Statements};

pub use super::statement::Param;

/// How often a transaction that met a deadlock or a serialisation conflict is repeated.
const CONFLICT_REPEATS: u32 = 5;

/// A statement with its parameters.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// The statement. Its first line names the function it belongs to.
    pub sql: &'static str,
    /// Its parameters.
    pub params: Vec<Param<'a>>,
}

impl<'a> Query<'a> {
    /// A statement with its parameters.
    pub fn new(sql: &'static str, params: impl Into<Vec<Param<'a>>>) -> Self {
        Self {
            sql,
            params: params.into(),
        }
    }
}

impl Database {
    /// Runs one statement outside of a transaction: a read, or a write that is one statement.
    pub(super) async fn read(
        &self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let lent = self.lend(Doing::Statement).await?;
        let sent = [sql];
        let sent = self.sent(&sent);
        let done = self.in_time(&lent, async {
            let statement = self.statements.ready(lent.connection()?, sent[0]).await?;
            statement.query(lent.connection()?, params).await
        });
        let done = done.await;
        lent.back(done)
    }

    /// Runs one writing statement, again if it met a deadlock.
    pub(super) async fn write(&self, query: &Query<'_>) -> Result<Vec<Row>, Error> {
        let mut repeats = 0;
        loop {
            match self.read(query.sql, &query.params).await {
                Err(Error::Conflict(_)) if repeats < CONFLICT_REPEATS => {
                    repeats = pause(repeats).await
                }
                result => return result,
            }
        }
    }

    /// Runs the statements as one transaction in one round trip, again if it met a deadlock. An
    /// error in one undoes them all.
    pub(super) async fn transact(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        let mut repeats = 0;
        loop {
            match self.transact_once(queries).await {
                Err(Error::Conflict(_)) if repeats < CONFLICT_REPEATS => {
                    repeats = pause(repeats).await
                }
                result => return result,
            }
        }
    }

    async fn transact_once(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        let lent = self.lend(Doing::Transaction).await?;
        let texts: Vec<&'static str> = queries.iter().map(|query| query.sql).collect();
        let texts = self.sent(&texts);
        let done = self
            .in_time(
                &lent,
                transaction(lent.connection()?, &self.statements, &texts, queries),
            )
            .await;
        lent.back(done)
    }
}

async fn transaction(
    connection: &Object,
    statements: &Statements,
    texts: &[&'static str],
    queries: &[Query<'_>],
) -> Result<Vec<Vec<Row>>, Error> {
    let ready = statements.all_ready(connection, texts).await?;
    // Each future sends its request when it is first polled, and they are polled in this order: the
    // whole transaction is on its way before the first answer is awaited.
    let mut begun = Box::pin(maybe_done(connection.batch_execute("begin")));
    let bodies = queries
        .iter()
        .zip(&ready)
        .map(|(query, ready)| ready.query(connection, query.params.as_slice()));
    let mut bodies: Vec<_> = bodies.map(maybe_done).map(Box::pin).collect();
    let unsent = poll_fn(|context| {
        let _ = begun.as_mut().poll(context);
        for body in &mut bodies {
            let _ = body.as_mut().poll(context);
        }
        Poll::Ready(
            bodies
                .iter_mut()
                .any(|body| matches!(body.as_mut().output_mut(), Some(Err(_)))),
        )
    });
    // A parameter that cannot be encoded fails here, and the database never gets its statement: it
    // would commit the others.
    let end = if unsent.await { "rollback" } else { "commit" };
    let ((), _, ended) = join3(
        begun.as_mut(),
        join_all(&mut bodies),
        connection.batch_execute(end),
    )
    .await;
    begun.as_mut().take_output().transpose()?;
    let rows = bodies
        .iter_mut()
        .filter_map(|body| body.as_mut().take_output())
        .collect::<Result<Vec<_>, _>>()?;
    ended?;
    Ok(rows)
}

/// Waits a little longer each time, so that two that met do not meet again.
async fn pause(repeats: u32) -> u32 {
    tokio::time::sleep(Duration::from_millis(5 << repeats)).await;
    repeats + 1
}
