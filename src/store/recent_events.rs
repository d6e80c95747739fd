//! A cache of events that this replica has just committed, with the messages they refer to: a local reader that waits
//! for them does not read the database.
//!
//! Events are served only for a short time. A deleted session keeps its id for longer, so they never belong to an
//! earlier session with the same id.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    event_page::{EventPage, EventPageLimits},
    generations::Generations,
};
use crate::{
    codec::event::CompletedCall,
    model::{Message, Seq, SessionKey, event::StoredEvent},
};

/// Maximum size of the events in each of two generations, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Maximum size of the events of one session, in bytes.
const MAX_SESSION_BYTES: u64 = 256 << 10;
/// How long events are served, or half the lease of a turn if that is shorter.
const MAX_AGE: Duration = Duration::from_secs(5);

/// An event after its commit.
#[derive(Debug, Clone)]
pub(super) struct RecentEvent {
    pub(super) event: StoredEvent,
    /// The message that it commits.
    pub(super) message: Option<Message>,
    /// The call that it completes.
    pub(super) result: Option<CompletedCall>,
    /// Bytes of its payload and its message, as [`EventPageLimits`] counts them.
    pub(super) bytes: u64,
}

/// The newest events of sessions.
#[derive(Debug, Clone)]
pub(super) struct RecentEvents {
    kept: Arc<Mutex<Generations<Tail>>>,
    fresh: Duration,
}

/// Events of one session without a gap.
type Tail = VecDeque<(Instant, RecentEvent)>;

impl RecentEvents {
    /// Creates an empty cache, for turns with leases of this duration.
    pub(super) fn new(lease: Duration) -> Self {
        Self { kept: Arc::new(Mutex::new(Generations::new(MAX_BYTES))), fresh: MAX_AGE.min(lease / 2) }
    }

    /// Adds the last events of a commit. Earlier events are kept too, unless there is a gap.
    pub(super) fn keep(&self, key: &SessionKey, events: Vec<RecentEvent>, now: Instant) {
        let Some(first) = events.first().map(|it| it.event.seq) else {
            return;
        };
        let mut kept = self.lock();
        let mut tail = kept.take(key).unwrap_or_default();
        if tail.back().is_some_and(|(_, last)| last.event.seq.0 + 1 != first.0) {
            tail.clear();
        }
        tail.extend(events.into_iter().map(|event| (now, event)));
        let mut bytes: u64 = tail.iter().map(|(_, it)| it.weight()).sum();
        let is_over = |since: Instant| now.duration_since(since) > self.fresh;
        while let Some((since, oldest)) = tail.front()
            && (bytes > MAX_SESSION_BYTES || is_over(*since))
        {
            bytes -= oldest.weight();
            tail.pop_front();
        }
        kept.keep(key, tail, usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Removes the events of a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.lock().take(key);
    }

    /// Drops the events of sessions that were not written since the previous call.
    pub(super) fn forget_unused(&self) {
        self.lock().age();
    }

    /// Returns the events after `after`, as many as fit. Returns `None` if the next event is not cached.
    pub(super) fn follow(
        &self,
        key: &SessionKey,
        after: Seq,
        most: EventPageLimits,
        now: Instant,
    ) -> Option<EventPage> {
        let kept = self.lock();
        let tail = kept.get(key)?;
        let (_, oldest) = tail.front()?;
        let start = usize::try_from(after.0 + 1 - oldest.event.seq.0).ok()?;
        let (since, _) = tail.get(start)?;
        if now.duration_since(*since) > self.fresh {
            return None;
        }
        let mut page = EventPage::default();
        let mut total = 0;
        let limit = usize::try_from(most.events).unwrap_or(usize::MAX);
        for (_, committed) in tail.range(start..).take(limit) {
            let bytes = u64::from(most.overhead) + committed.bytes;
            total += bytes;
            let is_wanted = page.events.is_empty() && most.at_least_one;
            if total > most.bytes && !is_wanted {
                page.oversized_bytes = Some(bytes);
                break;
            }
            page.events.push(committed.event.clone());
            if let Some(message) = &committed.message {
                let id = message.id.clone();
                page.content.messages.insert(id, message.clone());
            }
            if let Some(completed) = &committed.result {
                let call = completed.result.call.clone();
                page.content.results.insert(call, completed.clone());
            }
        }
        Some(page)
    }

    fn lock(&self) -> MutexGuard<'_, Generations<Tail>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentEvent {
    /// The size that counts against the limits, in bytes.
    fn weight(&self) -> u64 {
        size_of::<Self>() as u64 + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SessionId, TenantId};

    const LEASE: Duration = Duration::from_secs(20);
    const MOST: EventPageLimits = EventPageLimits { events: 10, bytes: 1_000, overhead: 10, at_least_one: false };

    fn key() -> SessionKey {
        SessionKey::new(TenantId::new("t"), SessionId::new("s"))
    }

    /// Events of 90 bytes each.
    fn events(seqs: std::ops::RangeInclusive<i64>) -> Vec<RecentEvent> {
        let event = |seq| StoredEvent {
            seq: Seq(seq),
            turn: None,
            step: 0,
            attempt: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: "turn_started".to_owned(),
            refs: Vec::new(),
            size: None,
            totals: None,
            payload: Vec::new(),
        };
        let committed = seqs.map(|seq| RecentEvent { event: event(seq), message: None, result: None, bytes: 90 });
        committed.collect()
    }

    fn seqs(page: &EventPage) -> Vec<i64> {
        page.events.iter().map(|event| event.seq.0).collect()
    }

    #[test]
    fn a_reader_gets_what_follows_its_cursor_without_a_gap_or_reads_the_table() {
        let recent = RecentEvents::new(LEASE);
        let now = Instant::now();
        let check = |after, expected: Option<&[i64]>| {
            let page = recent.follow(&key(), Seq(after), MOST, now);
            let found = page.as_ref().map(seqs);
            assert_eq!(found.as_deref(), expected, "after {after}");
        };
        check(0, None);
        recent.keep(&key(), events(5..=6), now);
        recent.keep(&key(), events(7..=7), now);
        check(3, None);
        check(4, Some(&[5, 6, 7]));
        check(6, Some(&[7]));
        check(7, None);
        // Another replica wrote in between.
        recent.keep(&key(), events(9..=10), now);
        check(7, None);
        check(8, Some(&[9, 10]));
        // The id was released and reused.
        recent.keep(&key(), events(1..=1), now);
        check(8, None);
        check(0, Some(&[1]));
        recent.forget(&key());
        check(0, None);
    }

    #[test]
    fn a_page_has_what_there_is_room_for() {
        let recent = RecentEvents::new(LEASE);
        let now = Instant::now();
        recent.keep(&key(), events(1..=4), now);
        let check = |most: EventPageLimits, expected: (&[i64], Option<u64>)| {
            let page = recent.follow(&key(), Seq(0), most, now).expect("known");
            assert_eq!((seqs(&page).as_slice(), page.oversized_bytes), expected, "{most:?}");
        };
        check(MOST, (&[1, 2, 3, 4], None));
        check(EventPageLimits { events: 2, ..MOST }, (&[1, 2], None));
        check(EventPageLimits { bytes: 299, ..MOST }, (&[1, 2], Some(100)));
        check(EventPageLimits { bytes: 300, ..MOST }, (&[1, 2, 3], Some(100)));
        check(EventPageLimits { bytes: 99, ..MOST }, (&[], Some(100)));
        let one = EventPageLimits { bytes: 99, at_least_one: true, ..MOST };
        check(one, (&[1], Some(100)));
    }

    #[test]
    fn events_are_shown_for_less_than_a_deleted_session_keeps_its_id() {
        let check = |lease: u64, age: u64, is_shown: bool| {
            let recent = RecentEvents::new(Duration::from_secs(lease));
            let committed = Instant::now();
            let now = committed + Duration::from_secs(age);
            recent.keep(&key(), events(1..=1), committed);
            let page = recent.follow(&key(), Seq(0), MOST, now);
            assert_eq!(page.is_some(), is_shown, "{age} s of a lease of {lease} s");
            recent.keep(&key(), events(2..=2), now);
            let page = recent.follow(&key(), Seq(0), MOST, now);
            assert_eq!(page.is_some(), is_shown, "also when more is committed");
            assert!(recent.follow(&key(), Seq(1), MOST, now).is_some());
        };
        check(20, 4, true);
        check(20, 6, false);
        check(4, 1, true);
        check(4, 3, false);
    }

    #[test]
    fn a_session_keeps_no_more_than_its_share() {
        let recent = RecentEvents::new(LEASE);
        let now = Instant::now();
        recent.keep(&key(), events(1..=10_000), now);
        assert!(recent.follow(&key(), Seq(0), MOST, now).is_none());
        assert!(recent.follow(&key(), Seq(9_999), MOST, now).is_some());
        let kept = recent.lock();
        let tail = kept.get(&key()).expect("kept");
        let bytes: u64 = tail.iter().map(|(_, it)| it.weight()).sum();
        assert!(bytes <= MAX_SESSION_BYTES, "{bytes}");
    }
}
