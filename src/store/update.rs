//! Updates of a session's configuration: each creates a new revision, with events.

use super::{Error, Store, commit::RequestResult};
use crate::{
    model::{Seq, SessionKey, command::Idempotency},
    session::{
        Session,
        revision::{self, NewRevision},
    },
};

/// A new revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    pub revision: i64,
    pub last_seq: Seq,
}

impl Store {
    /// Puts a new configuration in force. Returns `None` if the session is gone, its configuration changed
    /// concurrently, or the request is known.
    pub async fn update(
        &self,
        key: &SessionKey,
        new: &NewRevision<'_>,
        idempotency: &Idempotency,
    ) -> Result<Option<Updated>, Error> {
        let led = (new.from + 1).to_string();
        let update = |session: &Session| revision::update(session, new);
        let updated = self.change_for(key, (idempotency, RequestResult::Text(&led)), new.new.estimator, update).await?;
        Ok(updated.map(|session| Updated { revision: session.revision, last_seq: session.last_seq() }))
    }
}
