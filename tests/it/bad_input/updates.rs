//! Mistakes in requests that update or delete sessions.

use contextd::pb::FieldReason as F;
use tonic::Code;

use super::{
    rows::{Row, invalid, missing, refused},
    scene::Scene,
};

pub(super) fn updates(s: &Scene) -> Vec<Row> {
    let mut rows = masks(s);
    rows.extend(sessions(s));
    rows
}

fn masks(s: &Scene) -> Vec<Row> {
    let path = "update_mask.paths[0]";
    let many = vec!["model"; 257];
    vec![
        invalid("no path", s.change(&[""], |_| ()), &[(path, F::Required)]),
        invalid("a path to nowhere", s.change(&["mood"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path of another case", s.change(&["systemPrompt"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path with the request in it", s.change(&["session.model"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path beyond a text", s.change(&["model.name"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path to nothing in a message", s.change(&["limits.steps"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path that goes on with nothing", s.change(&["limits."], |_| ()), &[(path, F::Unknown)]),
        invalid("a path into a duration", s.change(&["limits.turn_timeout.seconds"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path into a list", s.change(&["pinned_blocks.name"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path into a list of a list", s.change(&["tools.host_tools.name"], |_| ()), &[(path, F::Unknown)]),
        invalid("a path into a map", s.change(&["metadata.chat"], |_| ()), &[(path, F::Unknown)]),
        invalid("all fields by a star", s.change(&["*"], |_| ()), &[(path, F::Unknown)]),
        invalid("a change of the id", s.change(&["session_id"], |_| ()), &[(path, F::Unsupported)]),
        invalid("a change of the etag", s.change(&["etag"], |_| ()), &[(path, F::Unsupported)]),
        invalid("a change of the state", s.change(&["state"], |_| ()), &[(path, F::Unsupported)]),
        invalid("a change of a time", s.change(&["create_time"], |_| ()), &[(path, F::Unsupported)]),
        invalid("257 paths", s.change(&many, |_| ()), &[("update_mask.paths", F::TooLarge)]),
        invalid(
            "several bad paths and values",
            s.change(&["model", "last_seq", "", "mood"], |it| {
                it.session_id.clear();
                it.limits.get_or_insert_default().max_steps = 1_001;
                it.metadata.insert("k".repeat(65), String::new());
            }),
            &[
                ("session.session_id", F::Required),
                ("update_mask.paths[1]", F::Unsupported),
                ("update_mask.paths[2]", F::Required),
                ("update_mask.paths[3]", F::Unknown),
                ("session.limits.max_steps", F::OutOfRange),
                (&format!("session.metadata[\"{}\"]", "k".repeat(40)), F::TooLarge),
            ],
        ),
    ]
}

fn sessions(s: &Scene) -> Vec<Row> {
    let stale = |what, call| refused(what, call, Code::Aborted, "ETAG_MISMATCH").with("etag", 1);
    vec![
        invalid("a change of nothing", s.update(|it| it.session = None), &[("session.session_id", F::Required)]),
        invalid(
            "a bad value that is not listed",
            s.change(&["model"], |it| it.policy = "x".repeat(129)),
            &[("session.policy", F::TooLarge)],
        ),
        invalid("a deletion of nothing", s.delete(|it| it.session_id.clear()), &[("session_id", F::Required)]),
        invalid(
            "a deletion under a key too long",
            s.delete(|it| it.request_id = "x".repeat(129)),
            &[("request_id", F::TooLarge)],
        ),
        missing(
            "a change to an unknown model",
            s.change(&["model"], |it| it.model = "scripted/none".into()),
            "MODEL_NOT_FOUND",
        ),
        missing(
            "a change to an unknown policy",
            s.update(|it| it.session.get_or_insert_default().policy = "none".into()),
            "POLICY_NOT_FOUND",
        ),
        stale("a change of what changed meanwhile", s.change(&["model"], |it| it.etag = "2".into())),
        stale("a change under no etag at all", s.change(&["model"], |it| it.etag = "new".into())),
        stale("a deletion of what changed meanwhile", s.delete(|it| it.etag = "2".into())),
    ]
}
