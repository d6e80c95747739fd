//! The event log of a session, read after a cursor, with the content that its events refer to.

use std::{
    collections::BTreeMap,
    sync::LazyLock,
    time::{Duration, Instant},
};

use tokio_postgres::Row;

use super::{
    Error, Store,
    event_page::{EventPage, EventPageLimits},
    message,
    named_parameters::Named,
    pipeline::Param,
    row::{count, get},
    rows::Key,
};
use crate::{
    codec::event::{CompletedCall, EventContent, refs_to_load},
    model::{CallId, Content as PartContent, Seq, SessionKey, TurnId, UsageTotals, event::StoredEvent},
};

/// The events that fit, and the size of the first event that does not. Sizes are computed without reading the content:
/// for values stored out of line, octet_length reads only the header.
pub(super) static FOLLOW: LazyLock<Named> = named_alone!("sql/events/follow.sql");
static EVENT: LazyLock<Named> = named_alone!("sql/events/one.sql");

/// The newest event in a range of seqs that committed an open message or made it void.
pub(super) const SETTLED: &str = "-- store::event::settled_between
    select max(e.seq) as seq from events e
      left join lateral (select s.role from messages s
                          where s.tenant_id = $1 and s.session_id = $2 and s.seq = e.seq and e.kind = 'message_committed' offset 0) m on true
     where e.tenant_id = $1 and e.session_id = $2 and e.seq > $3 and e.seq <= $4
       and (m.role = 3 or e.kind in ('turn_retrying', 'turn_recovered', 'turn_completed', 'turn_cancelled', 'turn_failed'))";

pub(super) const RESULTS: &str = "-- store::event::results
    select c.call_id, p.kind, p.tool_name, p.outcome, p.body, p.rest, p.tokens, p.category, p.estimator,
           coalesce(extract(epoch from c.closed_at - c.requested_at), 0)::float8 as elapsed
      from unnest($3::text[]) as u(id)
      join lateral (select * from tool_calls c
                     where c.tenant_id = $1 and c.session_id = $2 and c.call_id = u.id offset 0) c on true
      join lateral (select * from parts p
                     where p.tenant_id = $1 and p.session_id = $2 and p.message_id = c.result_message_id and p.idx = c.ord offset 0) p on true";

impl Store {
    /// Like [`Store::follow`] for a client that waits for new events, from events that this replica has just committed.
    /// Returns `None` if they are not in memory.
    pub fn recent_events(&self, key: &SessionKey, after: Seq, most: EventPageLimits) -> Option<EventPage> {
        self.recent.follow(key, after, most, Instant::now())
    }

    /// Reads the events after `after` in order, as many as fit. Fails if retention has removed some of them. A snapshot
    /// always shows a prefix of the log, because a seq is assigned and its row written under the same row lock.
    pub async fn follow(&self, key: &SessionKey, after: Seq, most: EventPageLimits) -> Result<EventPage, Error> {
        let EventPageLimits { events: limit, bytes, overhead, at_least_one: or_one } = most;
        let columns = Key::from(key);
        let limit = i64::from(limit);
        let overhead = i64::from(overhead);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let values = [
            ("tenant", &columns.tenant as Param<'_>),
            ("session", &columns.session),
            ("after", &after.0),
            ("limit", &limit),
            ("overhead", &overhead),
            ("bytes", &bytes),
            ("or_one", &or_one),
        ];
        let rows = self.database.read_named(&FOLLOW, &values).await?;
        let mut events = Vec::with_capacity(rows.len());
        let mut next = None;
        for row in &rows {
            if !get::<bool>(row, "fits")? {
                next = u64::try_from(get::<i64>(row, "bytes")?).ok();
                break;
            }
            events.push(event(row)?);
        }
        let has_gap = !are_dense(after, &events);
        if has_gap {
            self.check_retention(key, after).await?;
        }
        let (messages, calls) = refs_to_load(&events);
        // Sequentially, because concurrent reads would take two connections.
        let messages = self.messages_by_id(key, &messages).await?;
        let results = self.results(key, &calls).await?;
        let content = EventContent { messages, results };
        if (has_gap || !content.has_all(&events)) && self.is_gone(key).await? {
            // The remaining rows are incomplete.
            return Ok(EventPage {
                events: Vec::new(),
                content: EventContent::default(),
                oversized_bytes: None,
                is_gone: true,
            });
        }
        Ok(EventPage { events, content, oversized_bytes: next, is_gone: false })
    }

    /// Fails if retention has removed events after this seq. Otherwise the session was deleted and its rows are being
    /// removed.
    async fn check_retention(&self, key: &SessionKey, after: Seq) -> Result<(), Error> {
        const SQL: &str = "-- store::event::expired
            select events_from from sessions where tenant_id = $1 and session_id = $2 and events_from > $3";
        let key = Key::from(key);
        let next = after.0 + 1;
        match self.database.read(SQL, &[&key.tenant, &key.session, &next]).await?.first() {
            Some(row) => Err(Error::EventsExpired { oldest: Seq(get(row, "events_from")?) }),
            None => Ok(()),
        }
    }

    /// Whether the session is deleted, so that its rows are removed or being removed.
    async fn is_gone(&self, key: &SessionKey) -> Result<bool, Error> {
        const SQL: &str = "-- store::event::is_gone
            select 1 from session_run where tenant_id = $1 and session_id = $2 and state <> 3";
        let key = Key::from(key);
        let live = self.database.read(SQL, &[&key.tenant, &key.session]).await?;
        Ok(live.is_empty())
    }

    /// Reads one event, without the content it refers to.
    pub async fn event(&self, key: &SessionKey, seq: Seq) -> Result<Option<StoredEvent>, Error> {
        let key = Key::from(key);
        let rows = self
            .database
            .read_named(&EVENT, &[("tenant", &key.tenant as Param<'_>), ("session", &key.session), ("seq", &seq.0)])
            .await?;
        rows.first().map(event).transpose()
    }

    /// Finds the newest event after `after` and up to `until` that committed an assistant message or made it void.
    /// Returns `None` if there is none.
    pub async fn settled_between(&self, key: &SessionKey, after: Seq, until: Seq) -> Result<Option<Seq>, Error> {
        let key = Key::from(key);
        let rows = self.database.read(SETTLED, &[&key.tenant, &key.session, &after.0, &until.0]).await?;
        let newest = rows.first().map(|row| get::<Option<i64>>(row, "seq")).transpose()?;
        Ok(newest.flatten().map(Seq))
    }

    /// The results of answered calls, even before their message is committed.
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

/// Whether these events follow `after` without a gap.
fn are_dense(after: Seq, events: &[StoredEvent]) -> bool {
    events.iter().zip(after.0 + 1..).all(|(event, seq)| event.seq.0 == seq)
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
        totals: get::<Option<Vec<i64>>>(row, "totals")?.map(totals).transpose()?,
        payload: get(row, "payload")?,
    })
}

/// Decodes the total usage of a turn.
pub(super) fn totals(columns: Vec<i64>) -> Result<UsageTotals, Error> {
    let corrupt =
        |columns: Vec<i64>| Error::Corrupt(format!("unexpected number of usage totals of a turn: {}", columns.len()));
    let [calls, input, output, reasoning, cache_read, cache_write] = columns.try_into().map_err(corrupt)?;
    Ok(UsageTotals { calls, input, output, reasoning, cache_read, cache_write })
}
