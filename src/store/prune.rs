//! Tool results that the model no longer sees, and their return. Anyone may write this beside a
//! running turn: whoever owns it is not refused anything, and sees the version of the context move.

use tokio_postgres::Row;

use super::{
    Error, Store,
    compaction::{Moved, moved},
    lock::lock_run,
    pipeline::{Param, Query},
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

pub(super) const PRUNE: &str = statement!("sql/prune.sql", "sql/context_shift.sql"; " select f.context_version, f.next_seq from f");
pub(super) const RESTORE: &str = statement!("sql/restore.sql", "sql/context_shift.sql"; " select f.context_version, f.next_seq from f");

/// Looks at all of a session's parts, once for each prune that is taken back.
/// What a compaction stands for stays as it was counted by it, so that taking the compaction back
/// gives the same numbers.
const CLEARED_BY: &str = "-- store::prune::cleared_by: $3 seq of the prune
    select r.context_version,
           exists (select from events e where e.tenant_id = $1 and e.session_id = $2 and e.seq = $3 and e.kind = 'context_pruned') as known,
           p.message_id, p.idx, p.call_id, p.original_tokens - p.tokens as saved
      from session_run r
      left join lateral (
        select p.* from parts p
          join messages m on m.tenant_id = $1 and m.session_id = $2 and m.message_id = p.message_id
         where p.tenant_id = $1 and p.session_id = $2 and p.pruned_at_seq = $3 and m.voided_at_seq is null
           and not exists (
             select from (select c.from_seq, c.to_seq, c.kept from compactions c
                           where c.tenant_id = $1 and c.session_id = $2 and c.status = 2 order by c.active_from_seq desc limit 1) k
              where m.seq between k.from_seq and k.to_seq and not m.pinned and m.seq <> all (k.kept))
         order by m.seq, p.idx) p on true
     where r.tenant_id = $1 and r.session_id = $2 and r.state <> 3";

impl Store {
    /// Clears results, each of which costs `placeholder` tokens from now on. `None` means the
    /// context is another one, or the request is known.
    pub async fn prune(
        &self,
        key: &SessionKey,
        marks: &Marks<'_>,
        placeholder: u32,
    ) -> Result<Option<Moved>, Error> {
        self.mark(key, PRUNE, marks, &signed(placeholder)).await
    }

    /// Lets the model see results again that the prune with that seq cleared. None as above.
    pub async fn restore(
        &self,
        key: &SessionKey,
        marks: &Marks<'_>,
        pruned_at: Seq,
    ) -> Result<Option<Moved>, Error> {
        self.mark(key, RESTORE, marks, &pruned_at.0).await
    }

    async fn mark(
        &self,
        key: &SessionKey,
        sql: &'static str,
        marks: &Marks<'_>,
        by: Param<'_>,
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
        let mut params: Vec<Param<'_>> = vec![
            &key.tenant,
            &key.session,
            &marks.seen,
            &messages,
            &positions,
            by,
        ];
        params.extend([
            &marks.payload as Param<'_>,
            &request,
            &marks.idempotency.hash,
            &marks.led,
        ]);
        match self
            .database
            .transact(&[lock_run(&key), Query::new(sql, params)])
            .await
        {
            Ok(answers) => answers
                .last()
                .and_then(|rows| rows.first())
                .map(moved)
                .transpose(),
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
            .read(CLEARED_BY, &[&key.tenant, &key.session, &pruned_at.0])
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
