//! Tests of the initial state of a session.

use std::time::Duration;

use super::*;
use crate::{
    model::{SessionConfig, TurnId, command::TurnRequest},
    session::{change::TurnRow, rows::Rows, samples::answer_rows},
};

const HEIR: NewOwner<'static> = NewOwner { replica: "here", lease: Duration::from_secs(15) };

fn config(config: &SessionConfig) -> NewConfig<'_> {
    NewConfig { config, tools_tokens: 5, estimator: "test" }
}

fn turn<'a>(id: &'a TurnId, rows: &'a Rows, request: &'a TurnRequest) -> NewTurn<'a> {
    NewTurn {
        turn: id,
        rows,
        timeout: Duration::from_secs(600),
        revision: FIRST_REVISION,
        row: TurnRow { request_id: None, request, model: "model" },
    }
}

#[test]
fn the_epoch_begins_after_that_of_a_deleted_session_with_the_same_id() {
    let own = SessionConfig::default();
    let check = |last_epoch, first_turn| {
        let new = NewSession { config: config(&own), last_epoch };
        let created = create(&new);
        assert_eq!(created.session, new.empty());
        assert_eq!(created.session.fence.epoch, last_epoch);
        let (id, rows, request) = (TurnId::new("t"), Rows::default(), TurnRequest::default());
        let admitted = admit(&new, &turn(&id, &rows, &request), HEIR).expect("it is new");
        assert_eq!(admitted.session.fence.epoch, first_turn);
    };
    check(0, 1);
    check(7, 8);
}

#[test]
fn a_session_that_is_made_with_a_turn_has_its_rows_and_its_owner() {
    let own = SessionConfig::default();
    let new = NewSession { config: config(&own), last_epoch: 0 };
    let (id, rows, request) = (TurnId::new("t"), answer_rows(20), TurnRequest::default());
    let first = turn(&id, &rows, &request);
    let change = admit(&new, &first, HEIR).expect("it is new");
    assert!(change.creates);
    assert_eq!((change.config, change.first_seq()), (Some(new.config), Seq(1)));
    let becoming = &change.session;
    assert_eq!(becoming.next_seq, Seq(1 + rows.count()));
    assert!(becoming.is_owned_by("here"));
    assert_eq!((becoming.counters.messages, becoming.context_tokens()), (1, 24));
    let other = NewTurn { revision: 2, ..first };
    assert_eq!(admit(&new, &other, HEIR), None, "made for another configuration");
}
