//! Well-formed requests that conflict with the current state.

use super::*;

pub(super) fn conflicts(s: &Scene) -> Vec<Row> {
    vec![
        refused(
            "a turn while one runs",
            s.execute(|it| *it = turn("waits", "", "Hello")),
            Code::FailedPrecondition,
            "TURN_IN_PROGRESS",
        )
        .with("turn_id", &s.waiting)
        .with("last_seq", s.waiting_seq),
    ]
}
