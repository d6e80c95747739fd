//! Admission: starts a turn in an idle or new session. The turn, its lease and its first events are written in one
//! transaction.

use std::time::Duration;

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::{CommitConflicts, CommitMetadata, RequestResult, RequestToStore},
    grant::Grant,
    idempotency::StoredRequest,
    row::{get, role, session_state},
    rows::Key,
    seen::SessionSnapshot,
};
use crate::{
    model::{
        MessageId, RequestId, Role, Seq, SessionKey, TurnId,
        command::{Idempotency, TurnRequest},
    },
    session::{
        Session, SessionState,
        change::TurnRow,
        config_rows::NewConfig,
        creation,
        rows::Rows,
        start::{self, NewTurn, StartFrom},
    },
};

/// A turn to admit.
#[derive(Debug, Clone)]
pub struct Admission<'a> {
    pub turn: &'a TurnId,
    /// Its first events and its input message.
    pub rows: &'a Rows,
    pub timeout: Duration,
    /// The configuration revision for which its first step was prepared.
    pub revision: i64,
    pub idempotency: &'a Idempotency,
    /// The settings in which it differs from its session.
    pub request: &'a TurnRequest,
    /// Model reference of the turn.
    pub model: &'a str,
    /// Whether it starts without input. The transcript must then end with something the model has not answered.
    pub continues: bool,
}

/// The session state that prevents an admission, or the earlier result of the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    pub state: SessionState,
    /// The running turn, or the last one.
    pub turn: Option<TurnId>,
    pub last_seq: Seq,
    /// The current configuration revision.
    pub revision: i64,
    /// The stored result for the idempotency key.
    pub stored_request: Option<StoredRequest>,
}

/// Role of the newest message. Summaries are excluded, since they replace older messages, whatever their position.
pub(super) const LAST_ROLE: &str = "-- store::admission::last_role
    select m.role from messages m
     where m.tenant_id = $1 and m.session_id = $2 and m.voided_at_seq is null and not m.is_summary order by m.seq desc limit 1";

pub(super) const HEAD: &str = "-- store::admission::head
    select r.state, r.turn_id, r.next_seq, r.revision, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Starts a turn in an existing, idle session. Returns `None` if the session is not idle, the request is known, the
    /// configuration changed since it was read, or there is nothing to continue; [`Store::head`] returns the reason.
    pub async fn admit(&self, key: &SessionKey, admission: &Admission<'_>) -> Result<Option<Grant>, Error> {
        let new = new_turn(admission);
        let commit = CommitMetadata {
            estimator: &admission.rows.estimator,
            request: Some(RequestToStore {
                request: admission.idempotency,
                result: RequestResult::Text(admission.turn.as_str()),
                is_new: true,
            }),
            ..CommitMetadata::default()
        };
        if !admission.continues {
            let admit = |session: &Session| start::admit(session, &new, StartFrom::Input, self.next_owner());
            if let Some((change, _)) = self.commit_from_cache(key, admit, &commit).await? {
                return Ok(Grant::of(&change.session));
            }
        }
        let mut races = CommitConflicts::new("concurrent writes prevented the admission of a turn");
        loop {
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
            let Some(change) = start::admit(&seen.session, &new, opening, self.next_owner()) else {
                return Ok(None);
            };
            let seen = (seen.version, &seen.session);
            if self.commit(key, seen, &change, &commit).await?.is_some() {
                return Ok(Grant::of(&change.session));
            }
            races.record()?;
        }
    }

    /// Starts a turn in an idle session for a queued message. Returns `None` if the session is not idle, its
    /// configuration changed, or the message is no longer in the queue.
    pub async fn start_idle(
        &self,
        key: &SessionKey,
        message: &MessageId,
        admission: &Admission<'_>,
    ) -> Result<Option<Grant>, Error> {
        let new = new_turn(admission);
        let commit = CommitMetadata { estimator: &admission.rows.estimator, ..CommitMetadata::default() };
        let start = |session: &Session| start::start_for(session, message, &new, self.next_owner());
        if let Some((change, _)) = self.commit_from_cache(key, start, &commit).await? {
            return Ok(Grant::of(&change.session));
        }
        let start = |seen: &SessionSnapshot| start(&seen.session);
        let started = self.change(key, start, &commit).await?;
        Ok(started.as_ref().and_then(Grant::of))
    }

    /// Whether the transcript ends with something that the model has not answered: a user message or tool results.
    pub async fn asks_for_an_answer(&self, key: &SessionKey) -> Result<bool, Error> {
        let key = Key::from(key);
        let rows = self.database.read(LAST_ROLE, &[&key.tenant, &key.session]).await?;
        let last = rows.first().map(|row| get::<i16>(row, "role").and_then(role)).transpose()?;
        Ok(last.is_some_and(|role| role != Role::Assistant))
    }

    /// Creates a session with its first turn. Returns `None` if the session exists.
    pub async fn admit_new(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
        config: NewConfig<'_>,
    ) -> Result<Option<Grant>, Error> {
        let turn = new_turn(admission);
        let request = (admission.idempotency, admission.turn.as_str());
        let admit = |new| creation::admit(&new, &turn, self.next_owner());
        let made = Box::pin(self.make_session(key, config, request, admit));
        Ok(made.await?.as_ref().and_then(Grant::of))
    }

    /// Returns the session's state and the stored result of a request. Returns `None` if the session does not exist.
    pub async fn head(&self, key: &SessionKey, request: Option<&RequestId>) -> Result<Option<SessionHead>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(HEAD, &[&key.tenant, &key.session, &request.map(RequestId::as_str)]).await?;
        rows.first().map(head).transpose()
    }
}

/// The new turn of an admission.
pub(super) fn new_turn<'a>(admission: &Admission<'a>) -> NewTurn<'a> {
    NewTurn {
        turn: admission.turn,
        rows: admission.rows,
        timeout: admission.timeout,
        revision: admission.revision,
        row: TurnRow {
            request_id: admission.idempotency.request.as_ref(),
            request: admission.request,
            model: admission.model,
        },
    }
}

fn head(row: &Row) -> Result<SessionHead, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(SessionHead {
        state: session_state(get(row, "state")?)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: Seq(next_seq - 1),
        revision: get(row, "revision")?,
        stored_request: hash.zip(result).map(|(hash, result)| StoredRequest { hash, result }),
    })
}
