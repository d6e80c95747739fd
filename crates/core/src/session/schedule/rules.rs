//! Invariants of every change, with their numbers from `ARCHITECTURE.md`.

use std::collections::BTreeSet;

use super::{
    super::{
        Session, SessionState,
        change::{Change, Event},
    },
    stored::{MAX_QUEUED, Stored, lease},
};
use crate::model::{CallId, CompactionId, Fence, MessageId};

/// An action, and the state that it is based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    TakeOver {
        seen: i64,
    },
    Cancel,
    GiveBack,
    Adopt,
    Begin {
        made_for: i64,
    },
    Step,
    Answer,
    Finish,
    Stop,
    Enqueue,
    Withdraw,
    /// It starts a step with this configuration, if any.
    Take {
        made_for: Option<i64>,
    },
    TakeIdle,
    Delete {
        seen: Fence,
    },
    Seize,
    Start {
        made_for: i64,
        starter: Option<MessageId>,
    },
    Update {
        made_for: i64,
    },
    Compact,
    /// The number of times that the context had been rewritten when the compaction started.
    Swap {
        compaction: CompactionId,
        rewritten: u64,
    },
    Revert {
        compaction: CompactionId,
    },
    Prune,
    Import {
        fence: Fence,
        context_version: i64,
    },
}

impl Act {
    /// Whether only the owner may do it.
    fn is_owners(&self) -> bool {
        match self {
            Self::Begin { .. } | Self::Step | Self::Finish | Self::Stop | Self::Take { .. } | Self::GiveBack => true,
            Self::TakeOver { .. }
            | Self::Cancel
            | Self::Adopt
            | Self::Answer
            | Self::Enqueue
            | Self::Withdraw
            | Self::TakeIdle
            | Self::Delete { .. }
            | Self::Seize
            | Self::Start { .. }
            | Self::Update { .. }
            | Self::Compact
            | Self::Swap { .. }
            | Self::Revert { .. }
            | Self::Prune
            | Self::Import { .. } => false,
        }
    }

    fn ends_turn(&self) -> bool {
        matches!(self, Self::Finish | Self::Stop)
    }

    fn begins_turn(&self) -> bool {
        matches!(self, Self::Start { .. })
    }
}

/// The violation of a change of the stored session. Returns `None` if the change is valid.
pub(super) fn violation(stored: &Stored, who: &str, act: &Act, change: &Change<'_>) -> Option<String> {
    let wrong = of_act(stored, who, act, change)
        .or_else(|| of_queue(stored, change))
        .or_else(|| of_ownership(stored, who, act, change))
        .or_else(|| of_turn(stored, act, change))
        .or_else(|| of_context(stored, act, change))
        .or_else(|| of_cancel(&stored.session, act, &change.session))?;
    Some(format!("{wrong}: {act:?} by {who} of {:?}", stored.session))
}

/// Invariants that depend on the action.
fn of_act(stored: &Stored, who: &str, act: &Act, change: &Change<'_>) -> Option<&'static str> {
    let before = &stored.session;
    if act.is_owners() && !before.is_owned_by(who) {
        return Some("I2 an owner's write by another replica");
    }
    let closed: BTreeSet<&CallId> = change.closed.iter().map(|it| &it.call).collect();
    let open: BTreeSet<&CallId> = stored.open.iter().map(|call| &call.id).collect();
    match act {
        Act::TakeOver { seen } if *seen != before.fence.epoch => Some("I2 a takeover that was not looked for"),
        Act::Begin { made_for } if *made_for != before.revision => Some("I5 a step of another configuration"),
        Act::Start { made_for, .. } if *made_for != before.revision => Some("I5 a turn of another configuration"),
        Act::Update { made_for } if *made_for != before.revision => {
            Some("I5 a configuration that another one was made beside")
        }
        Act::Take { made_for: Some(made_for) } if *made_for != before.revision => {
            Some("I5 a step of another configuration")
        }
        Act::Start { .. } if before.state != SessionState::Idle => Some("I2 a turn begins in a session that has one"),
        Act::Start { .. } if !open.is_empty() => Some("I4 a turn begins between calls and results"),
        Act::Delete { seen } if *seen != before.fence => Some("I2 a session is deleted that went on since it was read"),
        Act::Import { fence, context_version }
            if (*fence, *context_version) != (before.fence, before.context_version) =>
        {
            Some("I5 messages are appended to another context")
        }
        Act::Start { starter: Some(starter), .. }
            if !before.queue.iter().any(|it| it.message == *starter && it.starts_turn) =>
        {
            Some("I3 a turn begins for a message that starts none")
        }
        Act::Finish if change.turn.end.is_some() && before.cancel.is_some() => Some("I9 a cancel is lost"),
        Act::Finish if !open.is_empty() => Some("I4 a turn ends between calls and results"),
        Act::Finish if change.turn.end.is_some() && before.has_messages_for_turn() => {
            Some("I3 a message is left behind")
        }
        Act::Stop | Act::Delete { .. } if before.state.is_live() && closed != open => {
            Some("I4 a turn ends with a call that is open")
        }
        Act::Take { .. } | Act::TakeIdle if !open.is_empty() => Some("I4 a message between calls and results"),
        Act::Take { .. } if before.cancel.is_some() => Some("I3 a message is taken into a turn that is to end"),
        Act::TakeIdle if before.state != SessionState::Idle => Some("I2 a turn that runs is not asked"),
        Act::Answer if before.cancel.is_some() => Some("I9 an answer counts of a cancelled turn"),
        Act::Answer if !before.state.is_live() || !closed.is_subset(&open) => {
            Some("I4 an answer counts of a call that is not open")
        }
        Act::Enqueue if change.session.queue.len() > MAX_QUEUED => Some("I3 more messages wait than may"),
        Act::TakeOver { .. }
        | Act::Cancel
        | Act::GiveBack
        | Act::Adopt
        | Act::Begin { .. }
        | Act::Step
        | Act::Answer
        | Act::Finish
        | Act::Stop
        | Act::Enqueue
        | Act::Withdraw
        | Act::Take { .. }
        | Act::TakeIdle
        | Act::Delete { .. }
        | Act::Seize
        | Act::Start { .. }
        | Act::Update { .. }
        | Act::Compact
        | Act::Swap { .. }
        | Act::Revert { .. }
        | Act::Prune
        | Act::Import { .. } => None,
    }
}

/// Invariants of compactions: only one runs at a time, it is applied to the context that it is based on, and it is
/// reverted before those that it builds on.
fn of_context(stored: &Stored, act: &Act, change: &Change<'_>) -> Option<&'static str> {
    let (before, after) = (&stored.session, &change.session);
    let made = before.compaction.as_ref().filter(|_| stored.making_until >= stored.now);
    if *act == Act::Compact && made.is_some() {
        return Some("I5 two compactions at once");
    }
    if let Act::Swap { compaction, rewritten } = act {
        if before.compaction.as_ref().map(|it| &it.id) != Some(compaction) {
            return Some("I5 a compaction that was given up");
        }
        if *rewritten != stored.rewritten {
            return Some("I5 a compaction of another context");
        }
    }
    if let Act::Revert { compaction } = act
        && stored.in_force.last().map(|it| &it.id) != Some(compaction)
    {
        return Some("I5 a compaction goes that others build on");
    }
    let is_counted = after.counters == before.counters + change.counter_change;
    (!is_counted).then_some("I6 counters that do not add up")
}

/// Invariants of the queue: each message keeps its position until it leaves the queue, exactly once.
fn of_queue(stored: &Stored, change: &Change<'_>) -> Option<&'static str> {
    let left: BTreeSet<&MessageId> = change.queue.removed.iter().map(|it| &it.message).collect();
    let ids = |session: &Session| -> Vec<MessageId> { session.waiting() };
    let waited = ids(&stored.session);
    if left.iter().any(|id| stored.ended.contains(*id) || !waited.contains(*id)) {
        return Some("I3 a message ends that does not wait");
    }
    let mut expected: Vec<MessageId> = waited.into_iter().filter(|id| !left.contains(id)).collect();
    expected.extend(change.queue.added.map(|it| it.message.clone()));
    (ids(&change.session) != expected).then_some("I3 the queue is another one")
}

/// Invariants of ownership: a valid lease is not taken by another replica, and each owner has its own epoch.
fn of_ownership(stored: &Stored, who: &str, act: &Act, change: &Change<'_>) -> Option<&'static str> {
    let (before, after) = (&stored.session, &change.session);
    let is_own = before.owner.as_deref() == Some(who);
    let new_epoch = after.fence.epoch != before.fence.epoch;
    let epoch = before.fence.epoch + i64::from(new_epoch);
    let op = before.fence.op + i64::from(act.is_owners());
    if after.fence.epoch != epoch || after.fence.op != op {
        return Some("I2 a fence that does not follow");
    }
    if !new_epoch {
        let given_back = after.owner.is_none() && is_own;
        let same = after.owner == before.owner;
        let renewed = change.lease.is_some() && !is_own;
        return if renewed {
            Some("I2 another's lease is renewed")
        } else {
            (!given_back && !same).then_some("I2 an owner without an epoch")
        };
    }
    if matches!(act, Act::Delete { .. }) {
        let nobodys = after.owner.is_none() && !change.session.state.is_live();
        return (!nobodys).then_some("I2 a deleted session has an owner");
    }
    let is_free = *act == Act::Seize || before.owner.is_none() || stored.lease_until < stored.now;
    if !after.is_owned_by(who) || change.lease != Some(lease()) {
        return Some("I2 another replica is made the owner");
    }
    (!is_own && !is_free).then_some("I2 a lease in force is lost")
}

/// Invariants of a turn: steps advance one at a time, and the seqs of events are consecutive.
fn of_turn(stored: &Stored, act: &Act, change: &Change<'_>) -> Option<&'static str> {
    let (before, after) = (&stored.session, &change.session);
    if before.state == SessionState::Deleted {
        return Some("I9 a deleted session goes on");
    }
    if after.next_seq.0 != before.next_seq.0 + change.count() {
        return Some("I1 seqs with a gap or twice");
    }
    let failed = |(_, event): &(_, Event)| match event {
        Event::TurnRecovered { handed_over, .. } => !handed_over,
        Event::CallCompleted(_)
        | Event::CallRequested { .. }
        | Event::ActionRequired { .. }
        | Event::CallCancelled { .. }
        | Event::MessageCommitted(_)
        | Event::StepStarted { .. }
        | Event::Complete { .. }
        | Event::CompactionExpired(_)
        | Event::CompactionReverted(_)
        | Event::Withdrawn { .. }
        | Event::TurnEnded { .. } => false,
    };
    let failures = change.events.iter().filter(|it| failed(it)).count();
    let more = after.takeovers.saturating_sub(before.takeovers);
    if usize::try_from(more) != Ok(failures) || more > 1 {
        return Some("I1 takeovers without an event");
    }
    if act.begins_turn() {
        return (after.turn == before.turn).then_some("I1 a turn that is not new");
    }
    let progress = after.step > before.step || after.takeovers < before.takeovers;
    let may_progress = act.is_owners() || *act == Act::Answer;
    if after.turn != before.turn || after.step > before.step + 1 || progress && !may_progress {
        return Some("I1 a turn that does not follow");
    }
    match after.state {
        SessionState::Running => None,
        SessionState::AwaitingTools if after.open_calls == 0 => Some("I4 a turn waits for nothing"),
        SessionState::AwaitingTools if after.cancel.is_some() => Some("I9 a turn waits that is to end"),
        SessionState::AwaitingTools => None,
        SessionState::Idle => {
            let may = act.ends_turn() || before.state == SessionState::Idle;
            (!may).then_some("I2 a turn ends without its owner")
        }
        SessionState::Deleted if !matches!(act, Act::Delete { .. }) => Some("I2 a session is deleted"),
        SessionState::Deleted if !after.queue.is_empty() || after.open_calls > 0 => {
            Some("I9 something waits in a deleted session")
        }
        SessionState::Deleted => None,
    }
}

/// The first cancel of a turn determines the reason; a later one may still request a rollback.
fn of_cancel(before: &Session, act: &Act, after: &Session) -> Option<&'static str> {
    let is_other = act.begins_turn() || *act == Act::Seize;
    let first = before.cancel.as_ref().filter(|_| !is_other)?;
    let Some(now) = &after.cancel else {
        return Some("I9 a cancel is forgotten");
    };
    let same = (now.cause, &now.reason) == (first.cause, &first.reason);
    (!same || first.rollback && !now.rollback).then_some("I9 another cancel wins")
}
