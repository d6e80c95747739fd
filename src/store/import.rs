//! Messages that a host appends by itself: after the transcript of an idle session, with the calls
//! that they make and answer.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    commit::Led,
    counters::counters,
    idempotency::Remembered,
    named_parameters::Named,
    pipeline::Param,
    row::{count, get, session_state},
    rows::Key,
    stats::model_dependent,
    version::{Version, version},
};
use crate::{
    model::{
        Anchor, CallId, RequestId, Seq, SessionKey, TurnId, append::OpenCall, command::Idempotency,
        ledger::ModelDependent,
    },
    session::{
        Session, SessionState,
        import::{self, Import},
    },
};

/// The turn of calls that were appended: none.
pub const NO_TURN: &str = "";

/// The end of a session's transcript, and the outcome of a request before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Where the session stands.
    pub state: SessionState,
    /// The live turn, or the last one.
    pub turn: Option<TurnId>,
    /// The newest seq.
    pub last_seq: Seq,
    /// What the transcript is.
    pub version: Version,
    /// Calls without results.
    pub open_calls: u32,
    /// Tokens of the live transcript.
    pub tokens: i64,
    /// The part of it that depends on the model that is called.
    pub holds: ModelDependent,
    /// The last call that was measured.
    pub anchor: Option<Anchor>,
    /// What the idempotency key led to.
    pub remembered: Option<Remembered>,
}

pub(super) static TAIL: LazyLock<Named> = named_alone!("sql/tail.sql");

pub(super) const APPENDED_CALLS: &str = "-- store::import::appended_calls
    select c.call_id, c.tool_name, m.pinned
      from tool_calls c
      join messages m on m.tenant_id = $1 and m.session_id = $2 and m.message_id = c.message_id
     where c.tenant_id = $1 and c.session_id = $2 and c.turn_id = '' and c.status < 3 order by c.part_idx";

impl Store {
    /// The end of a session's transcript. `None` means there is no such session.
    pub async fn tail(
        &self,
        key: &SessionKey,
        request: Option<&RequestId>,
    ) -> Result<Option<Tail>, Error> {
        let key = Key::from(key);
        let request = request.map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("request_id", &request),
        ];
        let rows = self.database.read_named(&TAIL, &values).await?;
        rows.first().map(tail).transpose()
    }

    /// The calls that were appended without results, in order.
    pub async fn appended_calls(&self, key: &SessionKey) -> Result<Vec<OpenCall>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read(APPENDED_CALLS, &[&key.tenant, &key.session])
            .await?;
        let call = |row: &Row| {
            let id = CallId::new(get::<String>(row, "call_id")?);
            Ok(OpenCall {
                id,
                name: get(row, "tool_name")?,
                pinned: get(row, "pinned")?,
            })
        };
        rows.iter().map(call).collect()
    }

    /// Appends messages to an idle session. `None` means a turn runs, the transcript is not what
    /// was seen, or the request is known; [`Store::tail`] tells. Else the newest seq. The request led to `result`.
    pub async fn import(
        &self,
        key: &SessionKey,
        import: &Import<'_>,
        (idempotency, result): (&Idempotency, &str),
    ) -> Result<Option<Seq>, Error> {
        let append = |session: &Session| import::import(session, import);
        let request = (idempotency, Led::To(result));
        let estimator = &import.rows.estimator;
        let appended = self.change_for(key, request, estimator, append).await?;
        Ok(appended.map(|session| session.last_seq()))
    }
}

fn tail(row: &Row) -> Result<Tail, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let counters = counters(row)?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(Tail {
        state: session_state(get(row, "state")?)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: Seq(next_seq - 1),
        version: version(row)?,
        open_calls: count(row, "open_calls")?,
        tokens: counters.size(),
        holds: model_dependent(row, &counters)?,
        anchor: anchor(row)?,
        remembered: hash
            .zip(result)
            .map(|(hash, result)| Remembered { hash, result }),
    })
}
