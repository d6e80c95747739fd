//! Forks: a session's transcript up to a seq, copied into a session of its own in one statement.

use super::{
    Error, Store,
    pipeline::{Param, Query},
    row::get,
    rows::Key,
    session::FIRST_REVISION,
};
use crate::model::{CallId, RequestId, Seq, SessionId, SessionKey, command::Idempotency};

pub(super) const FORK: &str = concat!(
    "-- store::fork::fork\n",
    include_str!("sql/live.sql"),
    include_str!("sql/size.sql"),
    include_str!("sql/fork.sql")
);
pub(super) const OPEN_AT: &str = include_str!("sql/open_at.sql");

impl Store {
    /// The calls that had no result when the session was at a seq, in the order the model made them.
    pub async fn open_calls_at(&self, key: &SessionKey, at: Seq) -> Result<Vec<CallId>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(OPEN_AT, &[&key.tenant, &key.session, &at.0]).await?;
        rows.iter().map(|row| Ok(CallId::new(get::<String>(row, "call_id")?))).collect()
    }

    /// Makes a session with the transcript of another one as it was at a seq, at which no call may be open, and with its configuration
    /// in force. False: there is no such session, or one with the new id exists.
    pub async fn fork(
        &self,
        source: &SessionKey,
        at: Seq,
        new: &SessionId,
        idempotency: &Idempotency,
    ) -> Result<bool, Error> {
        let (key, new, request) =
            (Key::from(source), new.as_str(), idempotency.request.as_ref().map(RequestId::as_str));
        let params: Vec<Param<'_>> =
            vec![&key.tenant, &key.session, &at.0, &new, &request, &idempotency.hash, &FIRST_REVISION];
        match self.database.write(&Query::new(FORK, params)).await {
            Ok(rows) => Ok(!rows.is_empty()),
            // Rows of a session that was deleted are there until they are purged.
            Err(Error::Duplicate(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
