//! Tool results that the model no longer sees, and their return.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::Led,
    compaction::Moved,
    named_parameters::Named,
    pipeline::Param,
    row::{count, get},
    rows::Key,
};
use crate::{
    model::{CallId, MessageId, Seq, SessionKey, command::Idempotency},
    session::{
        Session,
        mark_rows::Place,
        marks::{self, Marking},
    },
};

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

/// Looks at all of a session's parts, once for each prune that is taken back.
/// What a compaction stands for stays as it was counted by it, so that taking the compaction back
/// gives the same numbers.
static CLEARED_BY: LazyLock<Named> = named_alone!("sql/cleared_by.sql");

impl Store {
    /// Clears results, each of which costs `placeholder` tokens from now on. `None` means the
    /// context is another one, or the request is known. A request led to the seq of the event, and `led` behind it.
    pub async fn prune(
        &self,
        key: &SessionKey,
        marking: &Marking<'_>,
        placeholder: u32,
        (idempotency, led): (&Idempotency, &str),
    ) -> Result<Option<Moved>, Error> {
        let prune = |session: &Session| marks::prune(session, marking, placeholder);
        let pruned = self.change_for(key, (idempotency, Led::ToSeq(led)), "", prune);
        Ok(pruned.await?.as_ref().map(Moved::of))
    }

    /// Lets the model see results again that the prune with that seq cleared. `None` as above.
    pub async fn restore(
        &self,
        key: &SessionKey,
        marking: &Marking<'_>,
        pruned_at: Seq,
        idempotency: &Idempotency,
    ) -> Result<Option<Moved>, Error> {
        let restore = |session: &Session| marks::restore(session, marking, pruned_at);
        let restored = self.change_for(key, (idempotency, Led::ToSeq("")), "", restore);
        Ok(restored.await?.as_ref().map(Moved::of))
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
