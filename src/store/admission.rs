//! Admission: an idle session, or one that is made with it, gets a turn, its lease and its first
//! events in one transaction.

use std::time::Duration;

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::{Committed, Led, Races, Remember},
    grant::Grant,
    idempotency::Remembered,
    row::{get, role, session_state},
    rows::Key,
    seen::SeenSession,
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
        start::{self, NewTurn, Opening},
    },
};

/// A turn to be admitted.
#[derive(Debug, Clone)]
pub struct Admission<'a> {
    /// Its id.
    pub turn: &'a TurnId,
    /// Its first events and its input.
    pub rows: &'a Rows,
    /// How long it may take.
    pub timeout: Duration,
    /// The revision that its first step was made for.
    pub revision: i64,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// What it does differently from its session.
    pub request: &'a TurnRequest,
    /// Model reference.
    pub model: &'a str,
    /// It begins without input: the transcript must ask for an answer.
    pub continues: bool,
}

/// What stands in the way of an admission, or the outcome of the same request before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    /// Where the session stands.
    pub state: SessionState,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The newest seq.
    pub last_seq: Seq,
    /// The configuration's revision.
    pub revision: i64,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

/// Who spoke last. A summary stands for older words, wherever it is.
pub(super) const LAST_ROLE: &str = "-- store::admission::last_role
    select m.role from messages m
     where m.tenant_id = $1 and m.session_id = $2 and m.voided_at_seq is null and not m.is_summary order by m.seq desc limit 1";

pub(super) const HEAD: &str = "-- store::admission::head
    select r.state, r.turn_id, r.next_seq, r.revision, i.req_hash, i.result
      from session_run r
      left join idempotency i on i.tenant_id = $1 and i.session_id = $2 and i.request_id = $3
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Starts a turn in an existing, idle session. `None` means it is not idle, the request is
    /// known, the configuration changed since it was read, or there is nothing to continue;
    /// [`Store::head`] tells.
    pub async fn admit(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
    ) -> Result<Option<Grant>, Error> {
        let new = new_turn(admission);
        let commit = Committed {
            estimator: &admission.rows.estimator,
            request: Some(Remember {
                request: admission.idempotency,
                led: Led::To(admission.turn.as_str()),
                is_new: true,
            }),
            ..Committed::default()
        };
        if !admission.continues {
            let admit =
                |session: &Session| start::admit(session, &new, Opening::Input, self.heir());
            if let Some((change, _)) = self.commit_known(key, admit, &commit).await? {
                return Ok(Grant::of(&change.session));
            }
        }
        let mut races = Races::over("an admission");
        loop {
            let request = admission.idempotency;
            let (Some(seen), None) = self.read_session_and_request(key, request).await? else {
                return Ok(None);
            };
            // A commit that finds the session unchanged has seen its messages as they are.
            let opening = match admission.continues {
                false => Opening::Input,
                true if self.asks_for_an_answer(key).await? => Opening::Question,
                true => Opening::Answered,
            };
            let Some(change) = start::admit(&seen.session, &new, opening, self.heir()) else {
                return Ok(None);
            };
            let seen = (seen.version, &seen.session);
            if self.commit(key, seen, &change, &commit).await?.is_some() {
                return Ok(Grant::of(&change.session));
            }
            races.lost()?;
        }
    }

    /// Begins a turn in an idle session for a message that waits. `None` means the session is not
    /// idle, its configuration changed, or the message waits no longer.
    pub async fn start_idle(
        &self,
        key: &SessionKey,
        message: &MessageId,
        admission: &Admission<'_>,
    ) -> Result<Option<Grant>, Error> {
        let new = new_turn(admission);
        let commit = Committed {
            estimator: &admission.rows.estimator,
            ..Committed::default()
        };
        let start = |session: &Session| start::start_for(session, message, &new, self.heir());
        if let Some((change, _)) = self.commit_known(key, start, &commit).await? {
            return Ok(Grant::of(&change.session));
        }
        let start = |seen: &SeenSession| start(&seen.session);
        let started = self.change(key, start, &commit).await?;
        Ok(started.as_ref().and_then(Grant::of))
    }

    /// Whether the transcript ends in something that the model has not answered: a user's message,
    /// or results.
    pub async fn asks_for_an_answer(&self, key: &SessionKey) -> Result<bool, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(LAST_ROLE, &[&key.tenant, &key.session])
            .await?;
        let last = rows
            .first()
            .map(|row| get::<i16>(row, "role").and_then(role))
            .transpose()?;
        Ok(last.is_some_and(|role| role != Role::Assistant))
    }

    /// Creates a session with its first turn. `None` means the session exists.
    pub async fn admit_new(
        &self,
        key: &SessionKey,
        admission: &Admission<'_>,
        config: NewConfig<'_>,
    ) -> Result<Option<Grant>, Error> {
        let turn = new_turn(admission);
        let request = (admission.idempotency, admission.turn.as_str());
        let admit = |new| creation::admit(&new, &turn, self.heir());
        let made = Box::pin(self.make_session(key, config, request, admit));
        Ok(made.await?.as_ref().and_then(Grant::of))
    }

    /// Where a session stands and the outcome of a request. `None` means there is no such session.
    pub async fn head(
        &self,
        key: &SessionKey,
        request: Option<&RequestId>,
    ) -> Result<Option<SessionHead>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(
                HEAD,
                &[&key.tenant, &key.session, &request.map(RequestId::as_str)],
            )
            .await?;
        rows.first().map(head).transpose()
    }
}

/// A turn as it begins.
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
        remembered: hash
            .zip(result)
            .map(|(hash, result)| Remembered { hash, result }),
    })
}
