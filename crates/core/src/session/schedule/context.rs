//! Actions on the configuration and the context of a session.

use super::{
    super::{
        compaction::{self, AppliedCompaction, NewCompaction},
        compaction_rows::{Cost, Replacement, RunningCompaction},
        config_rows::NewConfig,
        counters::TokenCounters,
        import::{self, Import},
        import_rows::ImportRows,
        marks::{self, Marking},
        revision::{self, NewRevision},
        rows::Rows,
        samples::{answer_rows, compaction as sample},
    },
    guards::Guard,
    rules::Act,
    stored::{LEASE, lease},
    world::{View, World, open_call},
};
use crate::model::{CompactionId, MessageId, Payload, PruneReport, Seq, SessionConfig};

impl World {
    pub(super) fn updates(&mut self, who: usize, current: bool, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        let made_for = session.revision - i64::from(!current);
        if guard == Some(Guard::RevisionInUpdate) {
            session.revision = made_for;
        }
        let config = SessionConfig::default();
        let revision = NewRevision {
            new: NewConfig { config: &config, tools_tokens: 0, estimator: "test" },
            from: made_for,
            events: &[],
        };
        let change = revision::update(&session, &revision);
        self.commit(who, Act::Update { made_for }, change, guard);
    }

    pub(super) fn compacts(&mut self, who: usize, guard: Option<Guard>) {
        let mut session = self.views[who].session.clone();
        if guard == Some(Guard::RunningInCompact) {
            session.compaction = None;
        }
        let id = CompactionId::new(format!("k{}", self.next_id()));
        let started = Payload::CompactionStarted(Box::new(sample(id.as_str())));
        let beginning = NewCompaction {
            compaction: &id,
            seen: session.context_version,
            info: b"",
            started: &started,
            lease: lease(),
        };
        let change = compaction::begin(&session, &beginning);
        let rewritten = self.stored.rewritten;
        if self.commit(who, Act::Compact, change, guard) {
            self.stored.making_until = self.stored.now + LEASE;
            self.making[who] = Some((id, rewritten));
        }
    }

    pub(super) fn swaps(&mut self, who: usize, guard: Option<Guard>) {
        let Some((id, rewritten)) = self.making[who].clone() else {
            return;
        };
        self.looks(who);
        let mut session = self.views[who].session.clone();
        if guard == Some(Guard::RunningInSwap) {
            session.compaction = Some(RunningCompaction {
                id: id.clone(),
                context_version: session.context_version,
                lease_is_over: false,
            });
        }
        if let Some(running) = &mut session.compaction
            && guard == Some(Guard::ContextInSwap)
        {
            running.context_version = session.context_version;
        }
        let mut shift = TokenCounters::default();
        shift.messages(-1, -4);
        let cost = Cost::default();
        let replacement = Replacement {
            from: Seq(1),
            to: Seq(2),
            kept: &[],
            hides_pinned: false,
            shift,
            rows: &Rows::default(),
            info: b"",
            cost: &cost,
        };
        let in_force = self.views[who].in_force.last().cloned();
        let change = compaction::swap(&session, in_force.as_ref(), &id, &replacement);
        let compaction = id.clone();
        let act = Act::Swap { compaction, rewritten };
        if self.commit(who, act, change, guard) {
            self.stored.rewritten += 1;
            self.stored.in_force.push(AppliedCompaction { id, shift });
        }
    }

    pub(super) fn reverts(&mut self, who: usize, newest: bool, guard: Option<Guard>) {
        self.looks(who);
        let View { session, in_force, .. } = self.views[who].clone();
        let wanted = if newest { in_force.last() } else { in_force.first() };
        let Some(wanted) = wanted.cloned() else {
            return;
        };
        let known = match guard {
            Some(Guard::InForceInRevert) => Some(&wanted),
            Some(_) | None => in_force.last(),
        };
        let reverted = Payload::CompactionReverted(Box::new(sample(wanted.id.as_str())));
        let seen = session.context_version;
        let change = compaction::revert(&session, known, &wanted.id, seen, &reverted);
        let act = Act::Revert { compaction: wanted.id };
        if self.commit(who, act, change, guard) {
            self.stored.rewritten += 1;
            self.stored.in_force.pop();
        }
    }

    pub(super) fn prunes(&mut self, who: usize, guard: Option<Guard>) {
        let session = self.views[who].session.clone();
        let event = Payload::ContextPruned { report: PruneReport::default() };
        let marking = Marking {
            seen: session.context_version,
            places: &[(MessageId::new("results"), 0)],
            tokens: 1,
            event: &event,
        };
        let change = marks::prune(&session, &marking, 12);
        if self.commit(who, Act::Prune, change, guard) {
            self.stored.rewritten += 1;
        }
    }

    pub(super) fn imports(&mut self, who: usize, asks: bool, guard: Option<Guard>) {
        let View { session, before, .. } = self.views[who].clone();
        let mut seen = before;
        let (fence, context_version) = (seen.fence, seen.context_version);
        if guard == Some(Guard::SeenInImport) {
            seen = session.clone();
        }
        let id = self.next_id();
        let rows = answer_rows(5);
        let wanted = Import {
            fence: seen.fence,
            context_version: seen.context_version,
            rows: &rows,
            with: ImportRows { calls: &[], answers: &[], blobs: &[], version_before: 0 },
            open_calls: u32::from(asks),
        };
        let change = import::import(&session, &wanted);
        let act = Act::Import { fence, context_version };
        if self.commit(who, act, change, guard) {
            self.stored.open = asks.then(|| open_call(id, 0)).into_iter().collect();
        }
    }
}
