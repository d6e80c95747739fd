//! Requests that are well formed and meet a state that refuses them.

use super::*;

pub(super) fn conflicts(s: &Scene) -> Vec<Row> {
    let other_words = pb::ExecuteTurnRequest {
        input: turn("", "", "Bye").input,
        ..s.first.clone()
    };
    let key = s.first.request_id.clone();
    let run = |change: pb::ExecuteTurnRequest| s.execute(|it| *it = change);
    let labelled = pb::Session {
        metadata: labels([("a".into(), "b".into())]),
        ..Default::default()
    };
    let session_less = pb::ExecuteTurnRequest {
        request_id: "created".into(),
        ..turn("", "", "Hello")
    };
    vec![
        mismatch("a turn with other words", run(other_words), &key),
        mismatch(
            "a turn of another model",
            run(pb::ExecuteTurnRequest {
                model: "scripted/demo".into(),
                ..s.first.clone()
            }),
            &key,
        ),
        mismatch("a turn under a session's key", run(session_less), "created"),
        mismatch(
            "another session",
            s.create(|it| *it = created_once(labelled)),
            "created",
        ),
        mismatch(
            "another answer",
            s.submit(|it| *it = answered_once(submit("waits", vec![result(&s.open, "fine")]))),
            "answered",
        ),
        mismatch(
            "a cancel for another reason",
            s.cancel(|it| *it = cancelled_once("a reason")),
            "cancelled",
        ),
        mismatch(
            "a cancel under an answer's key",
            s.cancel(|it| (it.session_id, it.request_id) = ("waits".into(), "answered".into())),
            "answered",
        ),
        refused(
            "a turn while one runs",
            run(turn("waits", "", "Hello")),
            Code::FailedPrecondition,
            "TURN_IN_PROGRESS",
        )
        .with("turn_id", &s.waiting)
        .with("last_seq", s.waiting_seq),
    ]
}
