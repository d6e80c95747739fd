//! Tests of new revisions: what they are based on, and what they do not change.

use super::*;
use crate::{
    model::{Seq, SessionConfig, event::ModelSwitched},
    session::samples::{event_summaries, running, waiting},
};

fn switched() -> Payload {
    Payload::ModelSwitched(ModelSwitched {
        from: "a".to_owned(),
        to: "b".to_owned(),
        revision: 8,
        generation: SessionConfig::default().generation,
    })
}

#[test]
fn a_configuration_comes_in_force_if_it_was_made_from_the_one_that_is() {
    let config = SessionConfig::default();
    let new = NewConfig { config: &config, tools_tokens: 5, estimator: "test" };
    let updated = Payload::SessionUpdated { revision: 8, paths: Vec::new() };
    let events = [updated, switched()];
    let check = |what: &str, session: &Session, from, expected: bool| {
        let revision = NewRevision { new, from, events: &events };
        let change = update(session, &revision);
        assert_eq!(change.is_some(), expected, "{what}");
        let Some(change) = change else { return };
        let told = ["SessionUpdated at 0.0", "ModelSwitched of 10 at 0.0"];
        assert_eq!(event_summaries(&change.events), told, "{what}");
        assert_eq!((change.config, change.turn_id, change.is_use), (Some(new), None, true));
        let becoming = Session { revision: 8, next_seq: Seq(42), ..session.clone() };
        assert_eq!(change.session, becoming, "{what}: nothing else changes");
    };
    check("a turn runs", &running(), 7, true);
    check("a turn waits", &waiting(1), 7, true);
    check("another one came in between", &running(), 6, false);
    let deleted = Session { state: SessionState::Deleted, ..running() };
    check("there is no session", &deleted, 7, false);
}
