//! A connection that is in use, and how it comes back.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use deadpool_postgres::Object;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Error, connections::Held, standby::Standby, statement::only_reads};

/// How long a statement whose caller went away may go on before it is cancelled.
const SOON: Duration = Duration::from_millis(100);
/// How long it may take to tell the server that a statement is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the server is asked whether a commit without an answer waits for a standby.
const STANDBY_LOOK: Duration = Duration::from_secs(1);

/// A connection that is in use. It is closed unless it is given back: when its caller went away in
/// the middle, when no answer came in time, or when anything failed but a statement by the
/// database's own word, its state is not known. Its place in the pool is free only when its
/// statement has ended: see [`settle`].
pub(super) struct Lent {
    lent: Option<(Held, Settling)>,
    /// No answer came in time.
    expired: AtomicBool,
}

/// What is done on a connection.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    /// The statements.
    pub(super) statements: Vec<&'static str>,
    /// They are one transaction of several statements.
    pub(super) in_transaction: bool,
}

/// How the statement of a caller that went away is brought to its end.
pub(super) struct Settling {
    /// How the server is reached to cancel it.
    pub(super) tls: MakeRustlsConnect,
    /// How long its end is awaited.
    pub(super) patience: Duration,
    /// When it has ended, the connection is as good as before: nothing can be left open.
    pub(super) whole: bool,
    /// What was sent.
    pub(super) statements: Vec<&'static str>,
    /// Whether commits wait for a standby.
    pub(super) standby: Standby,
}

impl Lent {
    /// Lends a connection for something.
    pub(super) fn new(held: Held, settling: Settling) -> Self {
        Self {
            lent: Some((held, settling)),
            expired: AtomicBool::new(false),
        }
    }

    /// Notes that no answer came in time.
    pub(super) fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
    }

    /// Gives the connection back, if what was done on it leaves it as good as before.
    pub(super) fn back<T>(mut self, done: Result<T, Error>) -> Result<T, Error> {
        if !done.as_ref().is_err_and(Error::spoils_connection) {
            drop(self.lent.take());
        } else if !self.expired.load(Ordering::Relaxed)
            && let Some((held, _)) = self.lent.take()
        {
            // Broken, by its own word or the database's: no statement runs on it.
            held.close();
        }
        done
    }

    /// The connection.
    pub(super) fn connection(&self) -> Result<&Object, Error> {
        let lent = self.lent.as_ref().map(|(held, _)| &held.object);
        lent.ok_or_else(|| Error::Unavailable("the connection was given back".to_owned()))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some((held, mut settling)) = self.lent.take() else {
            return;
        };
        if *self.expired.get_mut() {
            // Its end was awaited for long enough, from a server that may be gone.
            settling.patience = Duration::ZERO;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(settle(held, settling))),
            Err(_) => held.close(), // the process ends
        }
    }
}

/// Holds the place in the pool of a connection whose caller went away until its statement has ended,
/// so that clients that give up again and again never have more statements run than the pool has
/// places.
///
/// A statement that only reads is cancelled. One that writes never is: a cancel that meets its COMMIT
/// while that waits for a synchronous standby makes PostgreSQL show what no standby has. Such a
/// statement ends by itself, after `statement_timeout` or `lock_timeout` at the latest, and its COMMIT
/// when the standby has it.
async fn settle(held: Held, settling: Settling) {
    let Settling {
        tls,
        patience,
        whole,
        statements,
        standby,
    } = settling;
    // Answers come in the order of the questions: with this one everything before it has ended.
    let mut ended = Box::pin(held.object.simple_query(""));
    if let Ok(answer) = timeout(SOON.min(patience), &mut ended).await {
        drop(ended);
        // Broken, or in a transaction that is never ended: closed.
        if answer.is_err() || !whole {
            held.close();
        }
        return;
    }
    if statements.iter().all(|sql| only_reads(sql)) {
        let token = held.object.cancel_token();
        let cancelled = token.cancel_query(tls);
        if timeout(CANCEL_TIMEOUT, cancelled)
            .await
            .is_ok_and(|sent| sent.is_ok())
        {
            let _ = timeout(patience, &mut ended).await;
        }
    } else {
        let mut end = Instant::now() + patience;
        let mut is_logged = false;
        while timeout_at(end, &mut ended).await.is_err() && standby.is_awaited().await {
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!("a commit waits for a synchronous standby");
            }
            end = Instant::now() + STANDBY_LOOK;
        }
    }
    drop(ended);
    // Never used again: the cancel may still be on its way, to whatever would be done next on this
    // connection.
    held.close();
}
