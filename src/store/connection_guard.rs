//! A connection in use, and how it returns to the pool.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use deadpool_postgres::Object;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Error, connections::PooledConnection, standby::Standby, statement::only_reads};

/// How long a statement may continue after its caller was dropped, before it is cancelled.
const CANCEL_DELAY: Duration = Duration::from_millis(100);
/// Timeout for sending a cancel request to the server.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which to check whether a commit without a response waits for a standby.
const STANDBY_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A connection in use. It is closed unless it is given back: its state is unknown if its caller was dropped during an
/// operation, if no response arrived in time, or after any failure other than an error that the database reported for a
/// statement. Its place in the pool becomes free only when its statement has ended: see [`settle`].
pub(super) struct ConnectionGuard {
    lent: Option<(PooledConnection, Cleanup)>,
    /// Whether the response timeout expired.
    expired: AtomicBool,
}

/// The work that is done on a connection.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) statements: Vec<&'static str>,
    /// Whether it is one transaction of several statements.
    pub(super) in_transaction: bool,
}

/// How to end the statement of a caller that was dropped.
pub(super) struct Cleanup {
    /// TLS settings for the cancel request.
    pub(super) tls: MakeRustlsConnect,
    /// How long to wait for the statement to end.
    pub(super) timeout: Duration,
    /// Whether the connection can be reused when the statement has ended, because no transaction can be left open.
    pub(super) is_reusable: bool,
    /// The statements that were sent.
    pub(super) statements: Vec<&'static str>,
    /// Detects whether commits wait for a standby.
    pub(super) standby: Standby,
}

impl ConnectionGuard {
    /// Lends a connection.
    pub(super) fn new(held: PooledConnection, settling: Cleanup) -> Self {
        Self { lent: Some((held, settling)), expired: AtomicBool::new(false) }
    }

    /// Records that the response timeout expired.
    pub(super) fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
    }

    /// Gives the connection back, unless the result shows that its state is unknown.
    pub(super) fn give_back<T>(mut self, done: Result<T, Error>) -> Result<T, Error> {
        if !done.as_ref().is_err_and(Error::spoils_connection) {
            drop(self.lent.take());
        } else if !self.expired.load(Ordering::Relaxed)
            && let Some((held, _)) = self.lent.take()
        {
            // The connection or the database reported a failure, so no statement is running.
            held.close();
        }
        done
    }

    /// The connection.
    pub(super) fn connection(&self) -> Result<&Object, Error> {
        let lent = self.lent.as_ref().map(|(held, _)| &held.object);
        lent.ok_or_else(|| Error::Unavailable("the connection was already returned".to_owned()))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Some((held, mut settling)) = self.lent.take() else {
            return;
        };
        if *self.expired.get_mut() {
            // The response timeout was already awaited, and the server may be gone.
            settling.timeout = Duration::ZERO;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(settle(held, settling))),
            Err(_) => held.close(), // the process ends
        }
    }
}

/// Keeps the pool place of a connection whose caller was dropped until its statement has ended, so that clients that
/// disconnect repeatedly never cause more running statements than the pool has places.
///
/// A statement that only reads is cancelled. A statement that writes never is: if a cancel request reaches its COMMIT
/// while the COMMIT waits for a synchronous standby, PostgreSQL makes changes visible that no standby has. Such a
/// statement ends after `statement_timeout` or `lock_timeout` at the latest, and its COMMIT when the standby has it.
async fn settle(held: PooledConnection, settling: Cleanup) {
    let Cleanup { tls, timeout: patience, is_reusable: whole, statements, standby } = settling;
    // Responses arrive in the order of the requests: the response to this one shows that all earlier statements ended.
    let mut ended = Box::pin(held.object.simple_query(""));
    if let Ok(answer) = timeout(CANCEL_DELAY.min(patience), &mut ended).await {
        drop(ended);
        // A broken connection, or one with an open transaction, is closed.
        if answer.is_err() || !whole {
            held.close();
        }
        return;
    }
    if statements.iter().all(|sql| only_reads(sql)) {
        let token = held.object.cancel_token();
        let cancelled = token.cancel_query(tls);
        if timeout(CANCEL_TIMEOUT, cancelled).await.is_ok_and(|sent| sent.is_ok()) {
            let _ = timeout(patience, &mut ended).await;
        }
    } else {
        let mut end = Instant::now() + patience;
        let mut is_logged = false;
        while timeout_at(end, &mut ended).await.is_err() && standby.is_awaited().await {
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!("a commit waits for a synchronous standby");
            }
            end = Instant::now() + STANDBY_POLL_INTERVAL;
        }
    }
    drop(ended);
    // Never reused: a delayed cancel request could hit the next statement on this connection.
    held.close();
}
