//! Wake-ups between replicas: sent in a transaction of their own, never in one that writes for a
//! session, and heard on one connection of each replica. They only save waiting: whoever misses one
//! finds the same by looking.

use futures_util::{
    StreamExt as _,
    stream::{BoxStream, poll_fn},
};
use tokio_postgres::{AsyncMessage, Client};

use super::{Error, Store, error::refused};

/// The channel of the database that they go through.
const LISTEN: &str = "listen contextd";

/// A connection that hears wake-ups.
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
    /// Tells all replicas, this one too.
    pub async fn notify(&self, wakeups: &[String]) -> Result<(), Error> {
        const SQL: &str = "-- store::listen::notify
            select pg_notify('contextd', u.wakeup) from unnest($1::text[]) as u(wakeup)";
        self.database.read(SQL, &[&wakeups]).await.map(drop)
    }

    /// Begins to listen. `None` means a pooler stands between, whose connections hear nothing.
    pub async fn listen(&self) -> Result<Option<Listener>, Error> {
        let Some((config, tls)) = self.database.listening() else {
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
                    // Whoever begins to listen looks at everything afterwards.
                    message = messages.next() => message.ok_or_else(closed)?.map(drop)?,
                }
            }
        }
        Ok(Some(Listener {
            _client: client,
            messages,
        }))
    }
}

impl Listener {
    /// The next wake-up.
    pub async fn next(&mut self) -> Result<String, Error> {
        loop {
            if let AsyncMessage::Notification(told) =
                self.messages.next().await.ok_or_else(closed)??
            {
                return Ok(told.payload().to_owned());
            }
        }
    }
}

fn closed() -> Error {
    Error::Unavailable("the connection that listens was closed".to_owned())
}
