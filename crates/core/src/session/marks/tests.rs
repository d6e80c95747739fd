//! Tests of pruning: a restore reverses a prune, and both apply only to the context that the results were chosen from.

use super::*;
use crate::{
    model::{MessageId, PruneReport},
    session::samples::{event_summaries, running},
};

fn pruned() -> Payload {
    Payload::ContextPruned { report: PruneReport::default() }
}

#[test]
fn results_are_cleared_if_the_context_is_the_one_that_they_were_chosen_from() {
    let event = pruned();
    let places = [(MessageId::new("m"), 0), (MessageId::new("m"), 1)];
    let check = |what: &str, session: &Session, seen, places: &[PartPosition], expected: bool| {
        let marking = Marking { seen, places, tokens: 300, event: &event };
        let change = prune(session, &marking, 12);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        assert_eq!(event_summaries(&change.events), ["ContextPruned at 0.0"], "{what}");
        assert_eq!(change.session.context_version, seen + 1, "{what}");
        assert_eq!(change.session.fence, session.fence, "its owner goes on");
        let mark = Mark::Pruned { placeholder: 12 };
        assert_eq!(change.marks, Some(Marks { places, mark }), "{what}");
    };
    check("as it was", &running(), 3, &places, true);
    check("another context", &running(), 2, &places, false);
    check("nothing to clear", &running(), 3, &[], false);
    let deleted = Session { state: SessionState::Deleted, ..running() };
    check("there is no session", &deleted, 3, &places, false);
}

#[test]
fn what_comes_back_leaves_the_counters_as_they_were() {
    let event = pruned();
    let places = [(MessageId::new("m"), 0), (MessageId::new("m"), 1)];
    let session = running();
    let marking = |seen| Marking { seen, places: &places, tokens: 300, event: &event };
    let cleared = prune(&session, &marking(3), 12).expect("as it was");
    let mut saved = TokenCounters::default();
    saved.count(Counter::ToolResults, 0, -300);
    saved.count(Counter::Pruned, 2, 300);
    assert_eq!(cleared.counter_change, saved);
    assert_eq!(cleared.session.context_tokens(), 700);
    let back = restore(&cleared.session, &marking(4), Seq(40)).expect("as it was");
    assert_eq!(back.counter_change, -saved);
    assert_eq!(back.session.context_tokens(), session.context_tokens());
    assert_eq!(back.session.counters.messages, session.counters.messages);
    let mark = Mark::Restored { pruned_at: Seq(40) };
    assert_eq!(back.marks.map(|marks| marks.mark), Some(mark));
}
