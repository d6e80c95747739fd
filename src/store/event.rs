//! The event log of a session, read after a cursor, with the content that its events refer to.

use std::{collections::BTreeMap, sync::LazyLock, time::Instant};

use tokio_postgres::Row;

use super::{
    Error, Store,
    event_page::{EventPage, EventPageLimits},
    message,
    named_parameters::Named,
    pipeline::Param,
    row::{count, duration, get},
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

pub(super) static RESULTS: LazyLock<Named> = named_alone!("sql/events/results.sql");

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
        let (limit, overhead) = (i64::from(limit), i64::from(overhead));
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let values: [(&str, Param<'_>); 5] =
            [("after", &after.0), ("limit", &limit), ("overhead", &overhead), ("bytes", &bytes), ("or_one", &or_one)];
        let rows = self.database.read_named_in(key, &FOLLOW, &values).await?;
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
            return Ok(EventPage { is_gone: true, ..EventPage::default() });
        }
        Ok(EventPage { events, content, oversized_bytes: next, is_gone: false })
    }

    /// Fails if retention has removed events after this seq. Otherwise the session was deleted and its rows are being
    /// removed.
    async fn check_retention(&self, key: &SessionKey, after: Seq) -> Result<(), Error> {
        const SQL: &str = "-- store::event::expired
            select events_from from sessions where tenant_id = $1 and session_id = $2 and events_from > $3";
        match self.database.read_in(key, SQL, &[&(after.0 + 1)]).await?.first() {
            Some(row) => Err(Error::EventsExpired { oldest: Seq(get(row, "events_from")?) }),
            None => Ok(()),
        }
    }

    /// Whether the session is deleted, so that its rows are removed or being removed.
    async fn is_gone(&self, key: &SessionKey) -> Result<bool, Error> {
        const SQL: &str = "-- store::event::is_gone
            select 1 from session_run where tenant_id = $1 and session_id = $2 and state <> 3";
        Ok(self.database.read_in(key, SQL, &[]).await?.is_empty())
    }

    /// Reads one event, without the content it refers to.
    pub async fn event(&self, key: &SessionKey, seq: Seq) -> Result<Option<StoredEvent>, Error> {
        let rows = self.database.read_named_in(key, &EVENT, &[("seq", &seq.0)]).await?;
        rows.first().map(event).transpose()
    }

    /// Finds the newest event after `after` and up to `until` that committed an assistant message or made it void.
    /// Returns `None` if there is none.
    pub async fn settled_between(&self, key: &SessionKey, after: Seq, until: Seq) -> Result<Option<Seq>, Error> {
        let rows = self.database.read_in(key, SETTLED, &[&after.0, &until.0]).await?;
        let newest = rows.first().map(|row| get::<Option<i64>>(row, "seq")).transpose()?;
        Ok(newest.flatten().map(Seq))
    }

    /// The results of answered calls, even before their message is committed.
    async fn results(&self, key: &SessionKey, calls: &[CallId]) -> Result<BTreeMap<CallId, CompletedCall>, Error> {
        if calls.is_empty() {
            return Ok(BTreeMap::new());
        }
        let calls: Vec<&str> = calls.iter().map(CallId::as_str).collect();
        let mut results = BTreeMap::new();
        for row in self.database.read_named_in(key, &RESULTS, &[("calls", &calls)]).await? {
            if let PartContent::ToolResult(result) = message::part(&row)?.part.content {
                let elapsed = duration(&row, "elapsed")?;
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
