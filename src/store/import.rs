//! Messages that a host appends by itself: after the transcript of an idle session, with the calls
//! that they make and answer.

use std::sync::LazyLock;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::{
    Error, Store,
    anchor::anchor,
    idempotency::Remembered,
    named_parameters::{self, Named},
    pipeline::Param,
    row::{count, get, role_number, session_state},
    rows::{Key, RowColumns, message_info, signed},
    stats::model_dependent,
    version::{Version, version},
};
use crate::{
    model::{
        Anchor, BlobId, CallId, MessageId, Payload, RequestId, Seq, SessionKey, TurnId,
        append::OpenCall, command::Idempotency, event::StepPosition, ledger::ModelDependent,
    },
    session::{SessionState, counters::Shift, rows::NewMessage},
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

/// Where a part stands.
pub type PartPlace = (MessageId, usize);

/// A call that an appended message makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCall {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// Where it is made.
    pub made: PartPlace,
    /// Where it is answered. `None` means it stays open.
    pub answered: Option<PartPlace>,
}

/// Messages to be appended, with what they do to the session's calls.
#[derive(Debug, Clone)]
pub struct Import<'a> {
    /// What the transcript was when it was looked at.
    pub seen: Version,
    /// The messages in order.
    pub messages: &'a [NewMessage],
    /// Calls that they make.
    pub calls: &'a [ImportedCall],
    /// Calls that were open, and where they are answered.
    pub answers: &'a [(CallId, PartPlace)],
    /// What results refer to: outputs that were cut, whole, and media.
    pub blobs: &'a [(PartPlace, BlobId)],
    /// Calls that are open after them.
    pub open: usize,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
    /// What the request led to, for its repetition.
    pub result: &'a str,
    /// Which estimator counted.
    pub estimator: &'a str,
}

/// The first one answers.
pub(super) static IMPORT: LazyLock<Vec<Named>> = named![
    "sql/import/run.sql",
    "sql/import/compaction.sql",
    "sql/rows/events.sql",
    "sql/rows/messages.sql",
    "sql/rows/parts.sql",
    "sql/rows/media.sql",
    "sql/rows/request.sql",
    "sql/import/messages.sql",
    "sql/import/calls.sql",
    "sql/import/answers.sql",
    "sql/import/blobs.sql",
    "sql/commit/context.sql",
    "sql/rows/session_used.sql",
];

pub(super) static TAIL: LazyLock<Named> = named_alone!("sql/import/tail.sql");

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
    /// was seen, or the request is known; [`Store::tail`] tells. Else the newest seq.
    pub async fn import(
        &self,
        key: &SessionKey,
        import: &Import<'_>,
    ) -> Result<Option<Seq>, Error> {
        let key = Key::from(key);
        let columns = Columns::from(import);
        let rows = rows(import);
        let mut shift = Shift::default();
        for message in import.messages {
            message.count(&mut shift);
        }
        let Version {
            context,
            epoch,
            op,
            revision: _,
        } = import.seen;
        let request = import.idempotency.request.as_ref().map(RequestId::as_str);
        let open = i32::try_from(import.open).unwrap_or(i32::MAX);
        let tokens = shift.tokens.as_slice();
        let parts = shift.parts.as_slice();
        let mut values = rows.values(&key);
        values.extend([
            ("context", &context as Param<'_>),
            ("epoch", &epoch),
            ("op", &op),
            ("request_id", &request),
            ("request_hash", &import.idempotency.hash),
            ("led", &import.result),
            ("open_calls", &open),
        ]);
        values.extend(columns.values());
        values.extend([
            ("shift_messages", &shift.messages as Param<'_>),
            ("shift_overhead", &shift.overhead),
            ("shift_tokens", &tokens),
            ("shift_parts", &parts),
        ]);
        let queries = named_parameters::queries(&IMPORT, &values, |name| match name {
            "store::rows::request" => request.is_some(),
            name => rows.need(name) && columns.need(name),
        })?;
        match self.database.transact(&queries).await {
            Ok(answers) => answers
                .first()
                .and_then(|rows| rows.first())
                .map(|row| Ok(Seq(get::<i64>(row, "next_seq")? - 1)))
                .transpose(),
            // The same request at the same time was faster.
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An event for each message, and the parts; the messages themselves are written by the statement,
/// with their times.
fn rows<'a>(import: &Import<'a>) -> RowColumns<'a> {
    let mut rows = RowColumns::new(import.estimator);
    for message in import.messages {
        let committed = Payload::MessageCommitted {
            message: message.id.clone(),
        };
        rows.event(StepPosition::default(), &committed);
        rows.parts_of(message);
    }
    rows
}

#[derive(Default)]
struct Columns<'a> {
    events: Vec<i32>,
    ids: Vec<&'a str>,
    roles: Vec<i16>,
    overheads: Vec<i32>,
    pinned: Vec<bool>,
    infos: Vec<Vec<u8>>,
    times: Vec<Option<Timestamp>>,
    call_ids: Vec<&'a str>,
    call_names: Vec<&'a str>,
    made: Places<'a>,
    results: Places<'a>,
    answered: Vec<&'a str>,
    answers: Places<'a>,
    blob_places: Places<'a>,
    blobs: Vec<&'a str>,
}

/// Places as columns.
#[derive(Default)]
struct Places<'a> {
    messages: Vec<&'a str>,
    parts: Vec<i32>,
}

impl<'a> Places<'a> {
    fn push(&mut self, place: Option<&'a PartPlace>) {
        let (message, part) = place.map_or(("", 0), |(message, part)| (message.as_str(), *part));
        self.messages.push(message);
        self.parts.push(i32::try_from(part).unwrap_or(i32::MAX));
    }
}

impl<'a> From<&Import<'a>> for Columns<'a> {
    fn from(import: &Import<'a>) -> Self {
        let mut columns = Self::default();
        for (event, message) in (1..).zip(import.messages) {
            columns.events.push(event);
            columns.ids.push(message.id.as_str());
            columns.roles.push(role_number(message.role));
            columns.overheads.push(signed(message.overhead));
            columns.pinned.push(message.pinned);
            columns.infos.push(message_info(message));
            columns.times.push(message.created_at);
        }
        for ImportedCall {
            id,
            name,
            made,
            answered,
        } in import.calls
        {
            columns.call_ids.push(id.as_str());
            columns.call_names.push(name);
            columns.made.push(Some(made));
            columns.results.push(answered.as_ref());
        }
        for (id, answered) in import.answers {
            columns.answered.push(id.as_str());
            columns.answers.push(Some(answered));
        }
        for (place, blob) in import.blobs {
            columns.blob_places.push(Some(place));
            columns.blobs.push(blob.as_str());
        }
        columns
    }
}

impl Columns<'_> {
    fn values(&self) -> [(&'static str, Param<'_>); 19] {
        [
            ("appended_events", &self.events),
            ("appended_ids", &self.ids),
            ("appended_roles", &self.roles),
            ("appended_tokens", &self.overheads),
            ("appended_pinned", &self.pinned),
            ("appended_infos", &self.infos),
            ("appended_times", &self.times),
            ("call_ids", &self.call_ids),
            ("call_names", &self.call_names),
            ("call_messages", &self.made.messages),
            ("call_parts", &self.made.parts),
            ("result_messages", &self.results.messages),
            ("result_parts", &self.results.parts),
            ("answered_ids", &self.answered),
            ("answered_messages", &self.answers.messages),
            ("answered_parts", &self.answers.parts),
            ("blob_messages", &self.blob_places.messages),
            ("blob_parts", &self.blob_places.parts),
            ("blobs", &self.blobs),
        ]
    }

    /// Whether a statement of that name has something to write.
    fn need(&self, statement: &str) -> bool {
        match statement {
            "store::import::import_calls" => !self.call_ids.is_empty(),
            "store::import::import_answers" => !self.answered.is_empty(),
            "store::import::import_blobs" => !self.blobs.is_empty(),
            _ => true,
        }
    }
}

fn tail(row: &Row) -> Result<Tail, Error> {
    let next_seq: i64 = get(row, "next_seq")?;
    let hash: Option<String> = get(row, "req_hash")?;
    let result: Option<String> = get(row, "result")?;
    Ok(Tail {
        state: session_state(get(row, "state")?)?,
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        last_seq: Seq(next_seq - 1),
        version: version(row)?,
        open_calls: count(row, "open_calls")?,
        tokens: get(row, "ctx_tokens")?,
        holds: model_dependent(row)?,
        anchor: anchor(row)?,
        remembered: hash
            .zip(result)
            .map(|(hash, result)| Remembered { hash, result }),
    })
}
