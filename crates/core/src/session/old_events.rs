//! Retention of events: which of a session's oldest events are removed, and when the session is checked again.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::Seq;

#[cfg(test)]
mod tests;

/// If the live turn keeps the session's oldest events from being removed, the session is checked again after this long.
const EVENTS_RECHECK_INTERVAL: Duration = Duration::from_mins(10);

/// Events that other rows refer to. They are kept but not shown: when a result was pruned or a compaction reverted,
/// what a turn was doing when it was cancelled, and each change of the configuration.
const REFERRED_TO: [&str; 5] =
    ["session_updated", "context_pruned", "context_restored", "compaction_reverted", "turn_cancelled"];

/// One of the oldest events of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldEvent {
    pub seq: Seq,
    pub at: Timestamp,
    pub kind: String,
    /// It belongs to the last step of its turn.
    pub of_last_step: bool,
}

/// The oldest events of a session, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldEvents {
    /// The oldest event that readers get.
    pub first: Seq,
    /// The first event of the live turn.
    pub live_from: Option<Seq>,
    /// In order of seq, starting at `first`.
    pub events: Vec<OldEvent>,
    /// There may be more old events.
    pub is_full: bool,
}

/// The result of applying retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The events to remove.
    pub gone: Vec<Seq>,
    /// The oldest event that readers get from now on.
    pub from: Seq,
    /// The time from which the age of the session's oldest event is counted.
    pub since: Timestamp,
}

impl OldEvents {
    /// Removes events older than `age` at `now`, up to the first event that is younger or belongs to the live turn. The
    /// event that started the last step of a turn is kept, because it contains the revision that the turn used.
    pub fn remove(&self, age: Duration, now: Timestamp) -> Removal {
        let Some(newest) = self.events.last() else {
            return Removal { gone: Vec::new(), from: self.first, since: now };
        };
        let old = now.saturating_sub(age).unwrap_or(Timestamp::MIN);
        let goes = |event: &&OldEvent| event.at < old && self.live_from.is_none_or(|live| event.seq < live);
        let stays = |event: &&OldEvent| !goes(event);
        let from = self.events.iter().find(stays).map_or(Seq(newest.seq.0 + 1), |event| event.seq);
        let since = self.events.iter().filter(stays).map(|event| event.at).min();
        let is_needed = |event: &&OldEvent| {
            REFERRED_TO.contains(&event.kind.as_str()) || event.kind == "step_started" && event.of_last_step
        };
        let gone =
            self.events.iter().filter(|event| event.seq < from && !is_needed(event)).map(|event| event.seq).collect();
        let since = match since {
            // The session is checked again immediately.
            None if self.is_full => newest.at,
            None => now,
            Some(since) => since.max(old.saturating_add(EVENTS_RECHECK_INTERVAL).unwrap_or(since)),
        };
        Removal { gone, from, since }
    }
}
