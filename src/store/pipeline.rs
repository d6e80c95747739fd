//! Transactions in one round trip: BEGIN, the statements and COMMIT are sent together, and the responses are read
//! afterwards. A single statement is its own transaction.

use std::{
    future::{Future as _, poll_fn},
    task::Poll,
    time::{Duration, Instant},
};

use deadpool_postgres::Object;
use futures_util::future::{join_all, join3, maybe_done, try_join_all};
use tokio_postgres::Row;

use super::{
    Database, Error, Reach,
    connection_guard::Operation,
    statement::{PreparedStatement, Statements},
    written_bytes::{Counting, WrittenBytes},
};

pub use super::statement::Param;
use crate::{model::TenantId, telemetry::Trace};

/// Sets the tenant that `row_security.sql` reads, until the end of the transaction.
const SET_TENANT: &str = "-- store::row_security::tell\nselect set_config('contextd.tenant', $1, true)";
/// Maximum number of retries after a deadlock or a serialization failure.
const MAX_CONFLICT_RETRIES: u32 = 5;

/// A statement with its parameters.
#[derive(Debug, Clone)]
pub struct Query<'a> {
    /// The SQL text. Its first line names the statement.
    pub sql: &'static str,
    pub params: Vec<Param<'a>>,
}

impl<'a> Query<'a> {
    /// Creates a query.
    pub fn new(sql: &'static str, params: impl Into<Vec<Param<'a>>>) -> Self {
        Self { sql, params: params.into() }
    }
}

impl Database {
    /// Runs one read statement.
    pub(super) async fn read(&self, sql: &'static str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        let rows = self.transact_once(&[Query::new(sql, params)], None).await?;
        Ok(only(rows))
    }

    /// Runs statements on one connection, sent together, each as its own transaction. If `writer` is set, their bytes are
    /// counted as written by this tenant.
    async fn separately(&self, queries: &[Query<'_>], writer: Option<&TenantId>) -> Result<Vec<Vec<Row>>, Error> {
        let texts: Vec<&'static str> = queries.iter().map(|query| query.sql).collect();
        let texts = self.sent(&texts);
        let doing = Operation { statements: texts.to_vec(), in_transaction: false };
        let lent = self.check_out(doing, None).await?;
        let begun = Instant::now();
        let done = async {
            let connection = lent.connection()?;
            let ready = self.statements.all_ready(connection, &texts).await?;
            let bytes = writer.map_or(0, |_| encoded_bytes(&ready, queries));
            let written = Counting::of(&self.written, writer, bytes);
            let sent = ready.iter().zip(queries);
            let sent = sent.map(|(ready, query)| ready.query(connection, &query.params));
            written.settled(try_join_all(sent).await)
        };
        // Boxed because callers hold it in deeply nested futures.
        let done = self.with_timeout(&lent, Box::pin(done)).await;
        for query in queries {
            self.measure([query.sql], begun, &done);
        }
        lent.give_back(done)
    }

    /// Runs several read statements on one connection, sent together and outside of a transaction.
    pub(super) async fn read_together(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        match self.tenant()? {
            Some(_) => self.transact_once(queries, None).await,
            None => self.separately(queries, None).await,
        }
    }

    /// Runs one write statement. Retries after a deadlock.
    pub(super) async fn write(&self, query: &Query<'_>) -> Result<Vec<Row>, Error> {
        Ok(only(self.transact(std::slice::from_ref(query)).await?))
    }

    /// Runs the statements as one transaction in one round trip. Retries after a deadlock. An error in one statement
    /// rolls back all of them.
    pub(super) async fn transact(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        let writer = self.writer();
        let mut repeats = 0;
        loop {
            match self.transact_once(queries, writer.as_ref()).await {
                Err(Error::Conflict(_)) if repeats < MAX_CONFLICT_RETRIES => repeats = pause(repeats).await,
                result => return result,
            }
        }
    }

    /// The current tenant, if its written bytes are counted.
    fn writer(&self) -> Option<TenantId> {
        match Reach::current() {
            Some(Reach::Tenant(tenant)) if self.written.follows(&tenant) => Some(tenant),
            Some(Reach::Tenant(_) | Reach::All) | None => None,
        }
    }

    async fn transact_once(&self, queries: &[Query<'_>], writer: Option<&TenantId>) -> Result<Vec<Vec<Row>>, Error> {
        let tenant = self.tenant()?;
        if let ([_], None) = (queries, &tenant) {
            // Boxed, like a transaction: callers hold it within their own futures.
            return Box::pin(self.separately(queries, writer)).await;
        }
        let texts: Vec<&'static str> = queries.iter().map(|query| query.sql).collect();
        let texts = self.sent(&texts);
        let doing = Operation { statements: texts.to_vec(), in_transaction: true };
        let lent = self.check_out(doing, tenant.as_ref()).await?;
        let begun = Instant::now();
        let done = transaction(lent.connection()?, &self.statements, tenant, &texts, (queries, &self.written, writer));
        let done = self.with_timeout(&lent, Box::pin(done)).await;
        self.measure(queries.iter().map(|query| query.sql), begun, &done);
        lent.give_back(done)
    }

    fn measure<T>(&self, statements: impl IntoIterator<Item = &'static str>, begun: Instant, done: &Result<T, Error>) {
        let error = done.as_ref().err().map(Error::kind);
        let operation = operation(statements);
        let took = begun.elapsed();
        self.metrics.database(operation, took, error);
        Trace::current().database(operation, took, error);
    }
}

/// The rows of the only statement.
fn only(rows: Vec<Vec<Row>>) -> Vec<Row> {
    rows.into_iter().next().unwrap_or_default()
}

/// The operation name of a transaction, for metrics: the name of its first statement that does more than increment the
/// session's version.
fn operation(statements: impl IntoIterator<Item = &'static str>) -> &'static str {
    let name = |sql: &'static str| {
        let name = sql.trim_start().strip_prefix("-- store::")?;
        let is_end = |(at, char): (usize, char)| {
            char.is_whitespace() || (char == ':' && !name[at..].starts_with("::") && !name[..at].ends_with(':'))
        };
        let end = name.char_indices().find(|found| is_end(*found));
        Some(&name[..end.map_or(name.len(), |(at, _)| at)])
    };
    let names: Vec<_> = statements.into_iter().filter_map(name).collect();
    let acts = |name: &&&str| **name != "idempotency::Request::raise";
    names.iter().find(acts).or_else(|| names.first()).copied().unwrap_or("other")
}

async fn transaction(
    connection: &Object,
    statements: &Statements,
    tenant: Option<TenantId>,
    texts: &[&'static str],
    (queries, written, writer): (&[Query<'_>], &WrittenBytes, Option<&TenantId>),
) -> Result<Vec<Vec<Row>>, Error> {
    let tenant = tenant.as_ref().map(TenantId::as_str);
    let told = tenant.as_ref().map(|tenant| Query::new(SET_TENANT, [tenant as Param<'_>]));
    let first = told.as_slice();
    let texts: Vec<_> = first.iter().map(|query| query.sql).chain(texts.iter().copied()).collect();
    let ready = statements.all_ready(connection, &texts).await?;
    let bytes = writer.map_or(0, |_| encoded_bytes(&ready[first.len()..], queries));
    let written = Counting::of(written, writer, bytes);
    let sending = send_transaction(connection, first, queries, &ready);
    written.settled(sending.await)
}

/// Size in bytes of the encoded parameters of statements.
fn encoded_bytes(ready: &[PreparedStatement], queries: &[Query<'_>]) -> i64 {
    ready.iter().zip(queries).map(|(ready, query)| ready.bytes(&query.params)).sum()
}

/// Sends a transaction whose statements are ready, and reads the responses.
async fn send_transaction(
    connection: &Object,
    first: &[Query<'_>],
    queries: &[Query<'_>],
    ready: &[PreparedStatement],
) -> Result<Vec<Vec<Row>>, Error> {
    // Each future sends its request when it is first polled, and they are polled in this order: the whole transaction
    // is sent before the first response is awaited.
    let mut begun = Box::pin(maybe_done(connection.batch_execute("begin")));
    let bodies =
        first.iter().chain(queries).zip(ready).map(|(query, ready)| ready.query(connection, query.params.as_slice()));
    let mut bodies: Vec<_> = bodies.map(maybe_done).map(Box::pin).collect();
    let unsent = poll_fn(|context| {
        let _ = begun.as_mut().poll(context);
        for body in &mut bodies {
            let _ = body.as_mut().poll(context);
        }
        Poll::Ready(bodies.iter_mut().any(|body| matches!(body.as_mut().output_mut(), Some(Err(_)))))
    });
    // A parameter that cannot be encoded fails here, and its statement is never sent. A commit would then keep the
    // effects of the other statements.
    let end = if unsent.await { "rollback" } else { "commit" };
    let ((), _, ended) = join3(begun.as_mut(), join_all(&mut bodies), connection.batch_execute(end)).await;
    begun.as_mut().take_output().transpose()?;
    let rows = bodies.iter_mut().filter_map(|body| body.as_mut().take_output()).collect::<Result<Vec<_>, _>>()?;
    ended?;
    Ok(rows.into_iter().skip(first.len()).collect())
}

/// Waits longer each time, so that two conflicting transactions do not conflict again.
async fn pause(repeats: u32) -> u32 {
    tokio::time::sleep(Duration::from_millis(5 << repeats)).await;
    repeats + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_named_after_its_first_statement_that_does_more_than_raise_a_version() {
        let check = |statements: &[&'static str], expected| {
            assert_eq!(operation(statements.iter().copied()), expected);
        };
        check(&["-- store::ping\nselect 1"], "ping");
        check(&["-- store::lease::beat: one statement\nselect 1"], "lease::beat");
        check(
            &["-- store::idempotency::Request::raise\nselect 1", "-- store::commit::turn: all\nselect 1"],
            "commit::turn",
        );
        let alone = "idempotency::Request::raise";
        check(&["-- store::idempotency::Request::raise"], alone);
        check(&["select 1"], "other");
    }
}
