//! Tests which requests count as the same.

use super::*;

fn hash_of(request: pb::ExecuteTurnRequest) -> String {
    decoded(request).unwrap().0.idempotency.hash
}

#[test]
fn request_hash_is_hex_and_depends_on_the_rpc() {
    let message = hello();
    let hash = request_hash("a", &message);
    assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)), "{hash}");
    assert_eq!(hash, request_hash("a", &hello()));
    assert_ne!(hash, request_hash("b", &message));
}

#[test]
fn request_hash_ignores_cursor_and_stream_options() {
    let repeated = turn_with(|r| {
        r.after_seq = 7;
        r.stream = Some(pb::StreamOptions { omit_deltas: true, ..Default::default() });
    });
    assert_eq!(hash_of(hello()), hash_of(repeated.clone()));
    let (command, stream) = decoded(repeated).unwrap();
    assert_eq!((command.after.0, stream.omit_deltas), (7, true));
}

#[test]
fn request_hash_ignores_output_only_fields() {
    let with = |session| turn_with(|r| r.session = Some(session));
    let shown = pb::Session {
        etag: "x".into(),
        state: 1,
        current_turn_id: "t".into(),
        last_seq: 1,
        queued_count: 1,
        compaction_count: 1,
        last_compaction_time: Some(Default::default()),
        currently_compacting: true,
        forked_from_session_id: "s".into(),
        forked_at_seq: 1,
        create_time: Some(Default::default()),
        update_time: Some(Default::default()),
        ..Default::default()
    };
    assert_eq!(hash_of(with(shown.clone())), hash_of(with(Default::default())));
    let create = |session| {
        let request = pb::CreateSessionRequest { session: Some(session), request_id: "r".into() };
        decoded(request).unwrap().idempotency.hash
    };
    assert_eq!(create(shown), create(Default::default()));
    let part = pb::Part { tokens: Some(Default::default()), sanitized: true, ..text("Hello") };
    assert_eq!(hash_of(turn_with(|r| r.input.as_mut().unwrap().parts = vec![part])), hash_of(hello()));
}

#[test]
fn request_hash_covers_every_other_field() {
    let changes: [fn(&mut pb::ExecuteTurnRequest); 6] = [
        |r| r.session_id = "s".into(),
        |r| r.input.as_mut().unwrap().parts.push(text("!")),
        |r| r.tools = Some(Default::default()),
        |r| r.model = "a/b".into(),
        |r| r.busy_policy = pb::BusyPolicy::Reject.into(),
        |r| r.session = Some(pb::Session { system_prompt: "x".into(), ..Default::default() }),
    ];
    for change in changes {
        assert_ne!(hash_of(turn_with(change)), hash_of(hello()));
    }
}

#[test]
fn request_hash_ignores_the_tool_name_of_a_result() {
    let submit = |tool_name: &str| {
        let result = pb::ToolResult { call_id: "c".into(), tool_name: tool_name.into(), ..Default::default() };
        let request =
            pb::SubmitToolResultsRequest { session_id: "s".into(), results: vec![result], ..Default::default() };
        decoded(request).unwrap().idempotency.hash
    };
    assert_eq!(submit("a"), submit("b"));
}
