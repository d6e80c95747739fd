//! The clients' log: read behind a cursor, with the content that its events refer to.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::try_join;
use tokio_postgres::Row;

use super::{
    Error, Store, message,
    row::{count, get},
    rows::Key,
};
use crate::{
    codec::event::{CompletedCall, Content, refs_to_load},
    model::{CallId, Content as PartContent, Seq, SessionKey, TurnId, event::StoredEvent},
};

/// A run of events with everything needed to show them, read at one time.
#[derive(Debug, Clone)]
pub struct Follow {
    /// The events in order, without gaps.
    pub events: Vec<StoredEvent>,
    /// The messages and results they refer to.
    pub content: Content,
}

pub(super) const FOLLOW: &str = "-- store::event::follow
    select seq, turn_id, step, attempt, at, kind, refs, size, payload from events
     where tenant_id = $1 and session_id = $2 and seq > $3 order by seq limit $4";

pub(super) const RESULTS: &str = "-- store::event::results
    select c.call_id, p.kind, p.tool_name, p.outcome, p.body, p.rest, p.tokens, p.category, p.estimator,
           coalesce(extract(epoch from c.closed_at - c.requested_at), 0)::float8 as elapsed
      from unnest($3::text[]) as u(id)
      join lateral (select * from tool_calls c
                     where c.tenant_id = $1 and c.session_id = $2 and c.call_id = u.id offset 0) c on true
      join lateral (select * from parts p
                     where p.tenant_id = $1 and p.session_id = $2 and p.message_id = c.result_message_id and p.idx = c.ord offset 0) p on true";

impl Store {
    /// The events behind `after` in order, at most `limit` of them. What a snapshot shows is always a prefix: a seq is taken and
    /// its row written under one row lock.
    pub async fn follow(&self, key: &SessionKey, after: Seq, limit: u32) -> Result<Follow, Error> {
        let events = self.events(key, after, limit).await?;
        let (messages, calls) = refs_to_load(&events);
        let (messages, results) = try_join(self.messages_by_id(key, &messages), self.results(key, &calls)).await?;
        let content = Content { messages, results };
        Ok(Follow { events, content })
    }

    /// One event, without what it refers to.
    pub async fn event(&self, key: &SessionKey, seq: Seq) -> Result<Option<StoredEvent>, Error> {
        let next = self.events(key, Seq(seq.0 - 1), 1).await?.pop();
        Ok(next.filter(|event| event.seq == seq))
    }

    async fn events(&self, key: &SessionKey, after: Seq, limit: u32) -> Result<Vec<StoredEvent>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(FOLLOW, &[&key.tenant, &key.session, &after.0, &i64::from(limit)]).await?;
        rows.iter().map(event).collect()
    }

    /// The results of calls that are answered, also while their message is not committed.
    async fn results(&self, key: &SessionKey, calls: &[CallId]) -> Result<BTreeMap<CallId, CompletedCall>, Error> {
        if calls.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (columns, calls): (Key, Vec<&str>) = (Key::from(key), calls.iter().map(CallId::as_str).collect());
        let mut results = BTreeMap::new();
        for row in self.database.read(RESULTS, &[&columns.tenant, &columns.session, &calls]).await? {
            let elapsed: f64 = get(&row, "elapsed")?;
            if let PartContent::ToolResult(result) = message::part(&row)?.part.content {
                let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or_default();
                results.insert(result.call.clone(), CompletedCall { result, elapsed });
            }
        }
        Ok(results)
    }
}

fn event(row: &Row) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        seq: Seq(get(row, "seq")?),
        turn: get::<Option<String>>(row, "turn_id")?.map(TurnId::new),
        step: count(row, "step")?,
        attempt: count(row, "attempt")?,
        at: get(row, "at")?,
        kind: get(row, "kind")?,
        refs: get(row, "refs")?,
        size: get(row, "size")?,
        payload: get(row, "payload")?,
    })
}
