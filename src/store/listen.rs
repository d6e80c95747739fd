//! Wake-ups between replicas. They are sent in a separate transaction, never in one that writes to a session, and each
//! replica receives them on one connection. They only reduce latency: a replica that misses one finds the same by
//! polling.

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, poll_fn},
};
use tokio_postgres::{AsyncMessage, Client};

use super::{Error, Store, error::refused};

/// The statement that listens on the notification channel.
const LISTEN: &str = "listen contextd";

/// A connection that receives wake-ups.
pub struct Listener {
    /// Keeps the connection open.
    _client: Client,
    messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl Store {
    /// Sends wake-ups to all replicas, including this one.
    pub async fn notify(&self, wakeups: &[String]) -> Result<(), Error> {
        const SQL: &str = "-- store::listen::notify
            select pg_notify('contextd', u.wakeup) from unnest($1::text[]) as u(wakeup)";
        self.database.read(SQL, &[&wakeups]).await.map(drop)
    }

    /// Begins to listen. Returns `None` if the database is accessed through a transaction pooler, which does not
    /// deliver notifications.
    pub async fn listen(&self) -> Result<Option<Listener>, Error> {
        let Some((config, tls)) = self.database.listening.clone() else {
            return Ok(None);
        };
        let (client, mut connection) = config.connect(tls).await.map_err(|error| {
            let error = refused(&error);
            self.database.metrics.connect_failed(error.kind());
            error
        })?;
        let mut messages = poll_fn(move |cx| connection.poll_message(cx)).boxed();
        {
            let mut asked = std::pin::pin!(client.batch_execute(LISTEN));
            loop {
                tokio::select! {
                    done = &mut asked => break done?,
                    // Dropped: the caller reads everything after it begins to listen.
                    message = messages.next() => message.ok_or_else(closed)?.map(drop)?,
                }
            }
        }
        Ok(Some(Listener { _client: client, messages }))
    }
}

impl Listener {
    /// Waits for the next wake-up.
    pub async fn next(&mut self) -> Result<String, Error> {
        loop {
            if let AsyncMessage::Notification(told) = self.messages.next().await.ok_or_else(closed)?? {
                return Ok(told.payload().to_owned());
            }
        }
    }
}

fn closed() -> Error {
    Error::Unavailable("the LISTEN connection was closed".to_owned())
}
