//! Tool results that the model no longer sees, and their return. Anyone may write this beside a
//! running turn: whoever owns it is not refused anything, and sees the version of the context move.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    compaction::{Moved, moved},
    lock::lock_run,
    named_parameters::{self, Named},
    pipeline::Param,
    row::{count, get},
    rows::{Key, signed},
};
use crate::model::{CallId, MessageId, RequestId, Seq, SessionKey, command::Idempotency};

/// Where a result stands: its message, and its position in it.
pub type Place = (MessageId, usize);

/// Results to be cleared, or to come back.
#[derive(Debug, Clone)]
pub struct Marks<'a> {
    /// The version of the context that they were chosen from.
    pub seen: i64,
    /// Where they stand.
    pub places: &'a [Place],
    /// The encoded event.
    pub payload: &'a [u8],
    /// What the request led to beside the event, for its repetition.
    pub led: &'a str,
    /// Idempotency.
    pub idempotency: &'a Idempotency,
}

/// A result that is cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// Where it stands.
    pub place: Place,
    /// The call that it answers.
    pub call: CallId,
    /// Tokens that its return costs.
    pub saved: u32,
}

/// The results that one prune cleared and that the model would see, with the version of the
/// context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearedBy {
    /// The version of the context.
    pub version: i64,
    /// The results that would come back.
    pub results: Vec<Cleared>,
    /// Whether there is such a prune at all, also when none of its results would come back.
    pub known: bool,
}

/// After the row lock. The first one answers.
pub(super) static PRUNE: LazyLock<Vec<Named>> = named![
    "sql/prune/run.sql",
    "sql/prune/context.sql",
    "sql/prune/request.sql",
    "sql/rows/event.sql",
    "sql/prune/marks.sql",
];
/// The same.
pub(super) static RESTORE: LazyLock<Vec<Named>> = named![
    "sql/restore/run.sql",
    "sql/restore/context.sql",
    "sql/prune/request.sql",
    "sql/rows/event.sql",
    "sql/restore/past.sql",
    "sql/restore/marks.sql",
];

/// Looks at all of a session's parts, once for each prune that is taken back.
/// What a compaction stands for stays as it was counted by it, so that taking the compaction back
/// gives the same numbers.
static CLEARED_BY: LazyLock<Named> = named_alone!("sql/prune/cleared_by.sql");

impl Store {
    /// Clears results, each of which costs `placeholder` tokens from now on. `None` means the
    /// context is another one, or the request is known.
    pub async fn prune(
        &self,
        key: &SessionKey,
        marks: &Marks<'_>,
        placeholder: u32,
    ) -> Result<Option<Moved>, Error> {
        let by = ("placeholder", &signed(placeholder) as Param<'_>);
        self.mark(key, &PRUNE, marks, ("context_pruned", by)).await
    }

    /// Lets the model see results again that the prune with that seq cleared. None as above.
    pub async fn restore(
        &self,
        key: &SessionKey,
        marks: &Marks<'_>,
        pruned_at: Seq,
    ) -> Result<Option<Moved>, Error> {
        let by = ("pruned_at", &pruned_at.0 as Param<'_>);
        self.mark(key, &RESTORE, marks, ("context_restored", by))
            .await
    }

    async fn mark(
        &self,
        key: &SessionKey,
        statements: &'static [Named],
        marks: &Marks<'_>,
        (kind, by): (&'static str, (&'static str, Param<'_>)),
    ) -> Result<Option<Moved>, Error> {
        let key = Key::from(key);
        let messages: Vec<&str> = marks
            .places
            .iter()
            .map(|(message, _)| message.as_str())
            .collect();
        let positions: Vec<i32> = marks
            .places
            .iter()
            .map(|(_, position)| i32::try_from(*position).unwrap_or(i32::MAX))
            .collect();
        let request = marks.idempotency.request.as_ref().map(RequestId::as_str);
        let values = [
            ("tenant", &key.tenant as Param<'_>),
            ("session", &key.session),
            ("seen", &marks.seen),
            ("messages", &messages),
            ("positions", &positions),
            by,
            ("kind", &kind),
            ("payload", &marks.payload),
            ("request_id", &request),
            ("request_hash", &marks.idempotency.hash),
            ("led", &marks.led),
        ];
        let mut queries = vec![lock_run(&key)];
        queries.extend(named_parameters::queries(statements, &values, |name| {
            name != "store::prune::request" || request.is_some()
        })?);
        match self.database.transact(&queries).await {
            Ok(answers) => answers
                .get(1)
                .and_then(|rows| rows.first())
                .map(moved)
                .transpose(),
            // The same request at the same time was faster.
            Err(Error::Duplicate(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the prune with that seq cleared. `None` means there is no such session.
    pub async fn cleared_by(
        &self,
        key: &SessionKey,
        pruned_at: Seq,
    ) -> Result<Option<ClearedBy>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(
                &CLEARED_BY,
                &[
                    ("tenant", &key.tenant as Param<'_>),
                    ("session", &key.session),
                    ("pruned_at", &pruned_at.0),
                ],
            )
            .await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let (version, told): (i64, bool) = (get(first, "context_version")?, get(first, "known")?);
        let results = rows.iter().map(cleared).collect::<Result<Vec<_>, _>>()?;
        let results: Vec<Cleared> = results.into_iter().flatten().collect();
        let known = told || !results.is_empty();
        Ok(Some(ClearedBy {
            version,
            results,
            known,
        }))
    }
}

fn cleared(row: &Row) -> Result<Option<Cleared>, Error> {
    let Some(message) = get::<Option<String>>(row, "message_id")? else {
        return Ok(None);
    };
    let position = usize::try_from(get::<i32>(row, "idx")?).unwrap_or_default();
    let call: Option<String> = get(row, "call_id")?;
    Ok(Some(Cleared {
        place: (MessageId::new(message), position),
        call: CallId::new(call.unwrap_or_default()),
        saved: count(row, "saved")?,
    }))
}
