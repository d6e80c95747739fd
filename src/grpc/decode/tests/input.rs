//! Tests user messages: role, parts, labels.

use super::*;
use crate::model::{Content, InputMessage, command::Start};

fn said(change: impl FnOnce(&mut pb::InputMessage)) -> Result<InputMessage, RequestError> {
    let request = turn_with(|r| change(r.input.as_mut().expect("hello has input")));
    decoded(request).map(|(command, _)| match command.start {
        Start::Input(input) => *input,
        Start::Queue | Start::Transcript => panic!("no input"),
    })
}

#[track_caller]
fn check_input(change: impl FnOnce(&mut pb::InputMessage), expected: &[(&str, FieldReason)]) {
    check(said(change), expected);
}

#[test]
fn only_users_give_input() {
    check_input(|m| m.set_role(pb::Role::User), &[]);
    for role in [pb::Role::System, pb::Role::Assistant, pb::Role::Tool] {
        check_input(|m| m.set_role(role), &[("input.role", Unsupported)]);
    }
    check_input(|m| m.role = 42, &[("input.role", Unknown)]);
}

#[test]
fn a_message_has_one_to_256_parts() {
    check_input(|m| m.parts = vec![], &[("input.parts", Required)]);
    check_input(|m| m.parts = vec![text("a"); 256], &[]);
    check_input(|m| m.parts = vec![text("a"); 257], &[("input.parts", TooLarge)]);
}

#[test]
fn what_belongs_to_append_messages_is_refused() {
    check_input(|m| m.response = Some(pb::ModelResponse::default()), &[("input.response", Unsupported)]);
    check_input(|m| m.create_time = Some(prost_types::Timestamp::default()), &[("input.create_time", Unsupported)]);
}

#[test]
fn a_part_has_content() {
    check_input(|m| m.parts.push(pb::Part::default()), &[("input.parts[1]", Invalid)]);
}

#[test]
fn a_text_is_neither_empty_nor_larger_than_a_mebibyte() {
    let mebibyte = 1024 * 1024;
    check_input(|m| m.parts = vec![text("")], &[("input.parts[0].text", Required)]);
    check_input(|m| m.parts = vec![text(&"a".repeat(mebibyte))], &[]);
    check_input(|m| m.parts = vec![text(&"a".repeat(mebibyte + 1))], &[("input.parts[0].text", TooLarge)]);
}

#[test]
fn provider_metadata_is_a_json_object_and_allows_empty_text() {
    let with = |json: &str| pb::Part { provider_metadata_json: json.into(), ..text("") };
    let metadata = "{\"b\":1.0, \"a\":2}";
    let message = said(|m| m.parts = vec![with(metadata)]).unwrap();
    assert_eq!(message.parts[0].content, Content::Text(String::new()));
    assert_eq!(message.parts[0].provider_metadata.as_deref(), Some(metadata));
    for json in ["[]", "{", "x"] {
        check_input(|m| m.parts = vec![with(json)], &[("input.parts[0].provider_metadata_json", NotJson)]);
    }
}

#[test]
fn user_messages_accept_no_other_kinds_of_parts() {
    use pb::part::Content;
    let call = pb::ToolCall { call_id: "c".to_owned(), tool_name: "t".to_owned(), ..Default::default() };
    let result = pb::ToolResult { call_id: "c".to_owned(), ..Default::default() };
    let item = pb::ProviderItem { provider: "p".to_owned(), kind: "k".to_owned(), ..Default::default() };
    let kinds = [
        ("reasoning", Content::Reasoning(Default::default())),
        ("tool_call", Content::ToolCall(call)),
        ("tool_result", Content::ToolResult(result)),
        ("refusal", Content::Refusal("no".into())),
        ("provider_item", Content::ProviderItem(item)),
        ("step_start", Content::StepStart(Default::default())),
        ("compaction_marker", Content::CompactionMarker(Default::default())),
    ];
    for (kind, content) in kinds {
        check_input(|m| m.parts = vec![part(content)], &[(&format!("input.parts[0].{kind}"), Unsupported)]);
    }
}

#[test]
fn user_messages_accept_no_citations() {
    let cited = pb::Part { citations: vec![Default::default()], ..text("a") };
    check_input(|m| m.parts = vec![cited], &[("input.parts[0].citations", Unsupported)]);
}

#[test]
fn output_only_fields_of_a_part_are_ignored() {
    let part = pb::Part {
        tokens: Some(Default::default()),
        preview_of: Some(Default::default()),
        sanitized: true,
        ..text("a")
    };
    let message = said(|m| m.parts = vec![part]).unwrap();
    assert_eq!(message.parts, [crate::model::Part::text("a")]);
}

#[test]
fn nul_characters_are_replaced_and_flagged() {
    let message = said(|m| m.parts = vec![text("a\0b"), text("c")]).unwrap();
    assert_eq!(message.parts[0].content, Content::Text("a\u{FFFD}b".into()));
    assert_eq!(message.parts.iter().map(|part| part.sanitized).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn labels_are_limited_in_number_and_length() {
    let labels = |count: usize| (0..count).map(|i| (i.to_string(), "v".to_owned())).collect();
    let label = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    check_input(|m| m.metadata = labels(32), &[]);
    check_input(|m| m.metadata = labels(33), &[("input.metadata", TooLarge)]);
    check_input(|m| m.metadata = label(&"ü".repeat(64), &"ü".repeat(1_024)), &[]);
    let cut = format!("input.metadata[\"{}\"]", "k".repeat(40));
    check_input(|m| m.metadata = label(&"k".repeat(65), "v"), &[(&cut, TooLarge)]);
    check_input(|m| m.metadata = label("k", &"v".repeat(1_025)), &[("input.metadata[\"k\"]", TooLarge)]);
    check_input(|m| m.metadata = label("", "v"), &[("input.metadata[\"\"]", Required)]);
    let message = said(|m| m.metadata = label("k", "\0")).unwrap();
    assert_eq!(message.metadata["k"], "\u{FFFD}");
}
