//! Admission: starts a turn in an idle or new session. The turn, its lease and its first events are written in one
//! transaction.

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::{CommitMetadata, MAX_COMMIT_CONFLICTS, RequestResult},
    grant::Grant,
    idempotency::{StoredRequest, joined_request},
    number::enum_value,
    row::{count, get, last_seq},
    seen::SessionSnapshot,
};
use crate::{
    model::{Fence, MessageId, RequestId, Role, Seq, SessionKey, TurnId, command::Idempotency},
    session::{
        Session, SessionState,
        config_rows::NewConfig,
        creation,
        start::{self, NewTurn, StartFrom},
    },
};

/// A turn to admit.
#[derive(Debug, Clone)]
pub struct Admission<'a> {
    pub new: NewTurn<'a>,
    pub idempotency: &'a Idempotency,
    /// Whether it starts without input. The transcript must then end with something the model has not answered.
    pub continues: bool,
}

/// The state of a session, and the earlier result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    pub state: SessionState,
    pub fence: Fence,
    /// The running turn, or the last one.
    pub turn: Option<TurnId>,
    /// Number of calls without a result.
    pub open_calls: u32,
    pub last_seq: Seq,
    /// The current configuration revision.
    pub revision: i64,
    /// The stored result for the idempotency key.
    pub stored_request: Option<StoredRequest>,
}

impl SessionHead {
    /// Returns the running turn.
    pub fn live_turn(&self) -> Option<&TurnId> {
        self.turn.as_ref().filter(|_| self.state.is_live())
    }
}

/// Role of the newest message. Summaries are excluded, since they replace older messages, whatever their position.
pub(super) const LAST_ROLE: &str = "-- store::admission::last_role
    select m.role from messages m
     where m.tenant_id = $1 and m.session_id = $2 and m.voided_at_seq is null and not m.is_summary order by m.seq desc limit 1";

pub(super) const HEAD: &str = "-- store::admission::head
    select r.state, r.epoch, r.op, r.turn_id, r.open_calls, r.next_seq, r.revision, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Starts a turn in an existing, idle session. Returns `None` if the session is not idle, the request is known, the
    /// configuration changed since it was read, or there is nothing to continue; [`Store::head`] returns the reason.
    pub async fn admit(&self, key: &SessionKey, admission: &Admission<'_>) -> Result<Option<Grant>, Error> {
        let Admission { new, .. } = admission;
        let result = RequestResult::Text(new.turn.as_str());
        let commit = CommitMetadata::counted_by(&new.rows.estimator).storing(admission.idempotency, result);
        if !admission.continues {
            let admit = |session: &Session| start::admit(session, new, StartFrom::Input, self.next_owner());
            if let Some((change, _)) = self.commit_from_cache(key, admit, &commit).await? {
                return Ok(Grant::of(&change.session));
            }
        }
        for _ in 0..MAX_COMMIT_CONFLICTS {
            let request = admission.idempotency;
            let (Some(seen), None) = self.read_session_and_request(key, request).await? else {
                return Ok(None);
            };
            // If the commit finds the session unchanged, its messages are unchanged too.
            let opening = match admission.continues {
                false => StartFrom::Input,
                true if self.asks_for_an_answer(key).await? => StartFrom::Question,
                true => StartFrom::Answered,
            };
            let Some(change) = start::admit(&seen.session, new, opening, self.next_owner()) else {
                return Ok(None);
            };
            if self.commit(key, seen.before(), &change, &commit).await?.is_some() {
                return Ok(Grant::of(&change.session));
            }
        }
        Err(Error::Conflict("concurrent writes prevented the admission of a turn".to_owned()))
    }

    /// Starts a turn in an idle session for a queued message. Returns `None` if the session is not idle, its
    /// configuration changed, or the message is no longer in the queue.
    pub async fn start_idle(
        &self,
        key: &SessionKey,
        message: &MessageId,
        admission: &Admission<'_>,
    ) -> Result<Option<Grant>, Error> {
        let Admission { new, .. } = admission;
        let commit = CommitMetadata::counted_by(&new.rows.estimator);
        let start = |session: &Session| start::start_for(session, message, new, self.next_owner());
        if let Some((change, _)) = self.commit_from_cache(key, start, &commit).await? {
            return Ok(Grant::of(&change.session));
        }
        let start = |seen: &SessionSnapshot| start(&seen.session);
        let started = self.change(key, start, &commit).await?;
        Ok(started.as_ref().and_then(Grant::of))
    }

    /// Whether the transcript ends with something that the model has not answered: a user message or tool results.
    pub async fn asks_for_an_answer(&self, key: &SessionKey) -> Result<bool, Error> {
        let rows = self.database.read_in(key, LAST_ROLE, &[]).await?;
        let last = rows.first().map(|row| enum_value::<Role>(row, "role")).transpose()?;
        Ok(last.is_some_and(|role| role != Role::Assistant))
    }

    /// Creates a session with its first turn. Returns `None` if the session exists.
    pub async fn admit_new(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
        config: NewConfig<'_>,
    ) -> Result<Option<Grant>, Error> {
        let turn = &admission.new;
        let request = (admission.idempotency, turn.turn.as_str());
        let admit = |new| creation::admit(&new, turn, self.next_owner());
        let made = Box::pin(self.make_session(key, config, request, admit));
        Ok(made.await?.as_ref().and_then(Grant::of))
    }

    /// Returns the session's state and the stored result of a request. Returns `None` if the session does not exist.
    pub async fn head(&self, key: &SessionKey, request: Option<&RequestId>) -> Result<Option<SessionHead>, Error> {
        let rows = self.database.read_in(key, HEAD, &[&request.map(RequestId::as_str)]).await?;
        rows.first().map(head).transpose()
    }
}

fn head(row: &Row) -> Result<SessionHead, Error> {
    Ok(SessionHead {
        state: enum_value(row, "state")?,
        fence: Fence { epoch: get(row, "epoch")?, op: get(row, "op")? },
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        open_calls: count(row, "open_calls")?,
        last_seq: last_seq(row)?,
        revision: get(row, "revision")?,
        stored_request: joined_request(row)?,
    })
}
