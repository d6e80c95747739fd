//! Tests of usage reports: they apply only to the idle session that the host read.

use super::*;
use crate::{
    model::event::UsageRecorded,
    session::{
        change::AnchorTime,
        samples::{event_summaries, measured, running, waiting},
    },
};

fn idle() -> Session {
    Session { state: SessionState::Idle, ..waiting(0) }
}

#[test]
fn a_report_counts_if_the_session_is_idle_and_as_it_was_looked_at() {
    let usage = Usage { input: 100, output: 7, ..Usage::default() };
    let recorded = Payload::UsageRecorded(UsageRecorded {
        purpose: UsagePurpose::Turn,
        model: "model".to_owned(),
        usage: Some(usage.clone()),
        estimate: None,
        ratio: 1.0,
        message: None,
        compaction: None,
    });
    let newest = measured("model", 3, 100);
    let message = MessageId::new("answer");
    let check = |what: &str, session: &Session, fence, context_version, expected: bool| {
        let report = Report {
            fence,
            context_version,
            purpose: UsagePurpose::Turn,
            model: "model",
            usage: &usage,
            event: &recorded,
            message: Some((&message, b"info")),
            measured: Some(&newest),
        };
        let change = record(session, &report);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        assert_eq!(event_summaries(&change.events), ["UsageRecorded at 0.0"]);
        let spent = ModelUsage {
            purpose: UsagePurpose::Turn,
            model: "model",
            totals: UsageTotals::default().plus(Some(&usage)),
        };
        assert_eq!(change.usage, Some(spent));
        assert_eq!(change.session.anchor.as_ref(), Some(&newest));
        assert_eq!(change.anchor_time, AnchorTime::Now);
        assert_eq!((change.turn_id, change.is_use), (None, true));
    };
    let fence = idle().fence;
    check("as it was", &idle(), fence, 3, true);
    check("another context", &idle(), fence, 2, false);
    check("a turn ran", &idle(), fence.next(), 3, false);
    check("a turn runs", &running(), fence, 3, false);
}
