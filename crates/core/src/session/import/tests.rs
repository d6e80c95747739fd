//! Tests of appends: they apply only to the transcript that the host read.

use super::*;
use crate::{
    model::{CompactionId, Seq},
    session::{
        compaction_rows::RunningCompaction,
        samples::{answer_rows, measured, running, waiting},
    },
};

fn idle() -> Session {
    Session {
        state: SessionState::Idle,
        anchor: Some(measured("model", 3, 100)),
        compaction: Some(RunningCompaction { id: CompactionId::new("k"), context_version: 3, lease_is_over: false }),
        ..waiting(0)
    }
}

#[test]
fn messages_are_appended_if_the_session_is_idle_and_as_it_was_looked_at() {
    let rows = answer_rows(20);
    let with = ImportRows { calls: &[], answers: &[], blobs: &[], version_before: 12 };
    let check = |what: &str, session: &Session, fence, context_version, expected: bool| {
        let wanted = Import { fence, context_version, rows: &rows, with, open_calls: 2 };
        let change = import(session, &wanted);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        assert_eq!((change.imports, change.turn_id, change.is_use), (Some(with), None, true));
        let becoming = &change.session;
        assert_eq!((becoming.fence, becoming.open_calls), (fence, 2));
        assert_eq!((becoming.counters.messages, becoming.context_tokens()), (11, 1_024));
        assert_eq!(becoming.next_seq, Seq(42));
        let anchor = becoming.anchor.as_ref().map(|anchor| anchor.version);
        let made_from = becoming.compaction.as_ref().map(|it| it.context_version);
        let versions = (becoming.context_version, anchor, made_from);
        assert_eq!(versions, (4, Some(4), Some(4)), "what is only added leaves the rest true");
    };
    let fence = idle().fence;
    check("as it was", &idle(), fence, 3, true);
    check("another context", &idle(), fence, 2, false);
    check("a turn ran", &idle(), fence.next(), 3, false);
    check("a turn runs", &running(), fence, 3, false);
}
