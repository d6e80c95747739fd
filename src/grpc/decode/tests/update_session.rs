//! Tests UpdateSession and DeleteSession.

use prost_types::FieldMask;

use super::*;

fn update_with(change: impl FnOnce(&mut pb::Session), paths: Option<&[&str]>) -> pb::UpdateSessionRequest {
    let mut session = pb::Session { session_id: "s".into(), ..Default::default() };
    change(&mut session);
    let mask = |paths: &[&str]| FieldMask { paths: paths.iter().map(|path| (*path).into()).collect() };
    pb::UpdateSessionRequest { session: Some(session), update_mask: paths.map(mask), request_id: "r".into() }
}

#[test]
fn update_mask_names_changes_and_defaults_to_set_fields() {
    let change = |it: &mut pb::Session| {
        (it.model, it.etag, it.last_seq) = ("a/b".into(), "7".into(), 9);
        it.limits = Some(pb::TurnLimits { max_steps: 3, ..Default::default() });
    };
    let table: [(Option<&[&str]>, &[&str]); 3] = [
        (Some(&["system_prompt", "limits"]), &["system_prompt", "limits"]),
        (Some(&[]), &["limits.max_steps", "model"]),
        (None, &["limits.max_steps", "model"]),
    ];
    for (mask, paths) in table {
        let update = decoded(update_with(change, mask)).unwrap();
        assert_eq!(update.change.paths, paths);
        assert_eq!((update.change.values.model.as_str(), update.etag.as_deref()), ("a/b", Some("7")));
        assert_eq!(update.change.values.limits.max_steps, Some(3));
    }
    assert_eq!(decoded(update_with(|_| (), None)).unwrap().etag, None);
}

#[test]
fn bad_mask_paths_and_bad_values_are_reported_together() {
    let long = |it: &mut pb::Session| it.policy = "x".repeat(129);
    let paths: &[&str] = &["model", "state", "", "limits.x"];
    check(
        decoded(update_with(long, Some(paths))),
        &[
            ("update_mask.paths[1]", Unsupported),
            ("update_mask.paths[2]", Required),
            ("update_mask.paths[3]", Unknown),
            ("session.policy", TooLarge),
        ],
    );
    let many = vec!["model"; 257];
    check(decoded(update_with(|_| (), Some(&many))), &[("update_mask.paths", TooLarge)]);
    check(decoded::<pb::UpdateSessionRequest>(Default::default()), &[("session.session_id", Required)]);
    check(decoded::<pb::DeleteSessionRequest>(Default::default()), &[("session_id", Required)]);
}

#[test]
fn request_hash_of_an_update_covers_the_etag_and_no_output_only_field() {
    let hash = |change: fn(&mut pb::Session)| decoded(update_with(change, Some(&["model"]))).unwrap().idempotency.hash;
    assert_eq!(hash(|it| it.last_seq = 9), hash(|_| ()));
    assert_ne!(hash(|it| it.etag = "1".into()), hash(|_| ()));
    let deletion = |etag: &str| {
        let request = pb::DeleteSessionRequest { session_id: "s".into(), etag: etag.into(), request_id: "r".into() };
        decoded(request).unwrap()
    };
    assert_ne!(deletion("1").idempotency.hash, deletion("").idempotency.hash);
    assert_eq!((deletion("1").etag, deletion("").etag), (Some("1".into()), None));
}
