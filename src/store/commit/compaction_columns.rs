//! Changes to compactions, as parameters of a commit.

use crate::{
    model::CompactionId,
    session::{
        Session,
        change::Change,
        compaction_rows::{CompactionChange, Replacement},
        counters::TokenCounters,
    },
    store::pipeline::Param,
};

/// All columns of a change to compactions.
#[derive(Default)]
pub(super) struct CompactionColumns<'a> {
    /// The running compaction that is rebased to the new context version, and that version.
    moved: Option<&'a str>,
    moved_to: i64,
    begun: Option<&'a str>,
    begun_info: &'a [u8],
    lease: f64,
    failed: Option<&'a str>,
    failed_info: Option<&'a [u8]>,
    applied: AppliedColumns<'a>,
    reverted: Vec<&'a str>,
    reverted_at: i64,
}

impl<'a> CompactionColumns<'a> {
    pub(super) fn new(seen: &'a Session, change: &'a Change<'_>) -> Self {
        let mut columns = Self::default();
        if let (Some(before), Some(running)) = (&seen.compaction, &change.session.compaction)
            && before.id == running.id
            && before.context_version != running.context_version
        {
            columns.moved = Some(running.id.as_str());
            columns.moved_to = running.context_version;
        }
        for compaction in &change.compactions {
            columns.push(compaction);
        }
        columns
    }

    fn push(&mut self, change: &'a CompactionChange<'_>) {
        match change {
            CompactionChange::Begins { compaction, info, lease } => {
                self.begun = Some(compaction.as_str());
                self.begun_info = info;
                self.lease = lease.as_secs_f64();
            }
            CompactionChange::Fails { compaction, info } => {
                self.failed = Some(compaction.as_str());
                self.failed_info = *info;
            }
            CompactionChange::Applies { compaction, predecessor, replacement } => {
                self.applied = AppliedColumns::new(compaction, predecessor.as_ref(), replacement)
            }
            CompactionChange::Reverts { compaction, at } => {
                self.reverted.push(compaction.as_str());
                self.reverted_at = at.0;
            }
        }
    }

    pub(super) fn values(&self) -> Vec<(&'static str, Param<'_>)> {
        let mut values = self.applied.values().to_vec();
        values.extend([
            ("moved_compaction", &self.moved as Param<'_>),
            ("moved_to", &self.moved_to),
            ("begun_compaction", &self.begun),
            ("begun_info", &self.begun_info),
            ("compaction_lease", &self.lease),
            ("failed_compaction", &self.failed),
            ("failed_info", &self.failed_info),
            ("reverted", &self.reverted),
            ("reverted_at", &self.reverted_at),
        ]);
        values
    }

    /// Whether the named statement has something to write. Returns `None` if the statement does not belong to these
    /// columns.
    pub(super) fn need(&self, statement: &str) -> Option<bool> {
        match statement {
            "move_compaction" => Some(self.moved.is_some()),
            "begin_compaction" => Some(self.begun.is_some()),
            "fail_compaction" => Some(self.failed.is_some()),
            "apply_compaction" => Some(self.applied.compaction.is_some()),
            "revert_compactions" => Some(!self.reverted.is_empty()),
            _ => None,
        }
    }
}

#[derive(Default)]
struct AppliedColumns<'a> {
    compaction: Option<&'a str>,
    predecessor: Option<&'a str>,
    from: i64,
    to: i64,
    kept: Vec<i64>,
    hides_pinned: bool,
    summary: Option<&'a str>,
    shift: TokenCounters,
    tokens: Vec<i64>,
    parts: Vec<i32>,
    info: &'a [u8],
}

impl<'a> AppliedColumns<'a> {
    fn new(
        compaction: &'a CompactionId,
        predecessor: Option<&'a CompactionId>,
        replacement: &'a Replacement<'_>,
    ) -> Self {
        let shift = replacement.shift;
        Self {
            compaction: Some(compaction.as_str()),
            predecessor: predecessor.map(CompactionId::as_str),
            from: replacement.from.0,
            to: replacement.to.0,
            kept: replacement.kept.iter().map(|seq| seq.0).collect(),
            hides_pinned: replacement.hides_pinned,
            summary: replacement.summary().map(|message| message.as_str()),
            shift,
            tokens: shift.tokens.to_vec(),
            parts: shift.parts.to_vec(),
            info: replacement.info,
        }
    }

    fn values(&self) -> [(&'static str, Param<'_>); 12] {
        [
            ("applied_compaction", &self.compaction),
            ("predecessor", &self.predecessor),
            ("from_seq", &self.from),
            ("to_seq", &self.to),
            ("kept", &self.kept),
            ("hides_pinned", &self.hides_pinned),
            ("summary", &self.summary),
            ("applied_messages", &self.shift.messages),
            ("applied_overhead", &self.shift.overhead),
            ("applied_tokens", &self.tokens),
            ("applied_parts", &self.parts),
            ("applied_info", &self.info),
        ]
    }
}
