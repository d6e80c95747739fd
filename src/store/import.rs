//! Messages that a host appends to the transcript of an idle session, with the calls that they make and answer.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    commit::RequestResult,
    counters::counters,
    idempotency::{StoredRequest, joined_request},
    named_parameters::Named,
    number::enum_value,
    row::{count, get, last_seq},
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

/// The turn id of appended calls, which belong to no turn.
pub const NO_TURN: &str = "";

/// The end of a session's transcript, and the stored result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    pub state: SessionState,
    /// The running turn, or the last one.
    pub turn: Option<TurnId>,
    pub last_seq: Seq,
    /// Version of the transcript.
    pub version: Version,
    /// Number of calls without results.
    pub open_calls: u32,
    /// Tokens of the live transcript.
    pub tokens: i64,
    /// The part of the tokens that depends on the model.
    pub model_dependent: ModelDependent,
    /// The last measured call.
    pub anchor: Option<Anchor>,
    /// The stored result for the idempotency key.
    pub stored_request: Option<StoredRequest>,
}

pub(super) static TAIL: LazyLock<Named> = named_alone!("sql/tail.sql");

pub(super) const APPENDED_CALLS: &str = "-- store::import::appended_calls
    select c.call_id, c.tool_name, m.pinned
      from tool_calls c
      join messages m on m.tenant_id = $1 and m.session_id = $2 and m.message_id = c.message_id
     where c.tenant_id = $1 and c.session_id = $2 and c.turn_id = '' and c.status < 3 order by c.part_idx";

impl Store {
    /// Reads the end of a session's transcript. Returns `None` if the session does not exist.
    pub async fn tail(&self, key: &SessionKey, request: Option<&RequestId>) -> Result<Option<Tail>, Error> {
        let request = request.map(RequestId::as_str);
        let rows = self.database.read_named_in(key, &TAIL, &[("request_id", &request)]).await?;
        rows.first().map(tail).transpose()
    }

    /// Lists the calls that were appended without results, in order.
    pub async fn appended_calls(&self, key: &SessionKey) -> Result<Vec<OpenCall>, Error> {
        let rows = self.database.read_in(key, APPENDED_CALLS, &[]).await?;
        let call = |row: &Row| {
            let id = CallId::new(get::<String>(row, "call_id")?);
            Ok(OpenCall { id, name: get(row, "tool_name")?, pinned: get(row, "pinned")? })
        };
        rows.iter().map(call).collect()
    }

    /// Appends messages to an idle session and stores `result` for the request. Returns the newest seq, or `None` if a
    /// turn is running, the transcript has changed since it was read, or the request is known; [`Store::tail`] returns
    /// the reason.
    pub async fn import(
        &self,
        key: &SessionKey,
        import: &Import<'_>,
        (idempotency, result): (&Idempotency, &str),
    ) -> Result<Option<Seq>, Error> {
        let append = |session: &Session| import::import(session, import);
        let request = (idempotency, RequestResult::Text(result));
        let estimator = &import.rows.estimator;
        let appended = self.change_for(key, request, estimator, append).await?;
        Ok(appended.map(|session| session.last_seq()))
    }
}

fn tail(row: &Row) -> Result<Tail, Error> {
    let counters = counters(row)?;
    Ok(Tail {
        state: enum_value(row, "state")?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: last_seq(row)?,
        version: version(row)?,
        open_calls: count(row, "open_calls")?,
        tokens: counters.size(),
        model_dependent: model_dependent(row, &counters)?,
        anchor: anchor(row)?,
        stored_request: joined_request(row)?,
    })
}
