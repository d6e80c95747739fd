//! Pruned tool results, which the model no longer sees, and their restoration.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::{
    Error, Store,
    commit::RequestResult,
    compaction::ContextUpdate,
    named_parameters::Named,
    row::{count, get},
};
use crate::{
    model::{CallId, MessageId, Seq, SessionKey, command::Idempotency},
    session::{
        Session,
        mark_rows::PartPosition,
        marks::{self, Marking},
    },
};

/// A pruned result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunedResult {
    pub place: PartPosition,
    /// The call that it answers.
    pub call: CallId,
    /// Tokens that restoring it adds.
    pub saved: u32,
}

/// The results of one prune that the model would see again after a restore, with the version of the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunedResults {
    /// Version of the context.
    pub version: i64,
    /// The results that would be restored.
    pub results: Vec<PrunedResult>,
    /// Whether such a prune exists, even if none of its results would be restored.
    pub known: bool,
}

/// Scans all parts of a session, once per restored prune. Messages replaced by a compaction keep the counts that the
/// compaction used, so that reverting the compaction gives the same numbers.
static CLEARED_BY: LazyLock<Named> = named_alone!("sql/cleared_by.sql");

impl Store {
    /// Prunes results, each of which then counts `placeholder` tokens. Returns `None` if the context has changed or the
    /// request is known. The stored result of the request is the seq of the event, followed by `led`.
    pub async fn prune(
        &self,
        key: &SessionKey,
        marking: &Marking<'_>,
        placeholder: u32,
        (idempotency, led): (&Idempotency, &str),
    ) -> Result<Option<ContextUpdate>, Error> {
        let prune = |session: &Session| marks::prune(session, marking, placeholder);
        let pruned = self.change_for(key, (idempotency, RequestResult::SeqThenText(led)), "", prune);
        Ok(pruned.await?.as_ref().map(ContextUpdate::of))
    }

    /// Restores the results of the prune with this seq. Returns `None` like [`Store::prune`].
    pub async fn restore(
        &self,
        key: &SessionKey,
        marking: &Marking<'_>,
        pruned_at: Seq,
        idempotency: &Idempotency,
    ) -> Result<Option<ContextUpdate>, Error> {
        let restore = |session: &Session| marks::restore(session, marking, pruned_at);
        let restored = self.change_for(key, (idempotency, RequestResult::SeqThenText("")), "", restore);
        Ok(restored.await?.as_ref().map(ContextUpdate::of))
    }

    /// Reads the results of the prune with this seq. Returns `None` if the session does not exist.
    pub async fn cleared_by(&self, key: &SessionKey, pruned_at: Seq) -> Result<Option<PrunedResults>, Error> {
        let rows = self.database.read_named_in(key, &CLEARED_BY, &[("pruned_at", &pruned_at.0)]).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let (version, told): (i64, bool) = (get(first, "context_version")?, get(first, "known")?);
        let results = rows.iter().map(cleared).collect::<Result<Vec<_>, _>>()?;
        let results: Vec<PrunedResult> = results.into_iter().flatten().collect();
        let known = told || !results.is_empty();
        Ok(Some(PrunedResults { version, results, known }))
    }
}

fn cleared(row: &Row) -> Result<Option<PrunedResult>, Error> {
    let Some(message) = get::<Option<String>>(row, "message_id")? else {
        return Ok(None);
    };
    let position = usize::try_from(get::<i32>(row, "idx")?).unwrap_or_default();
    let call: Option<String> = get(row, "call_id")?;
    Ok(Some(PrunedResult {
        place: (MessageId::new(message), position),
        call: CallId::new(call.unwrap_or_default()),
        saved: count(row, "saved")?,
    }))
}
