//! Messages of the SDK, in and out.

use serde_json::{Value, json};

use crate::{
    model::PromptShape,
    provider::foreign::{
        self, Foreign, ForeignContent as Content, ForeignGiven as Given, ForeignOutcome as Outcome,
    },
};

fn import(messages: &Value) -> Foreign {
    foreign::read(PromptShape::AiSdk, &messages.to_string(), "made_")
}

#[test]
fn parts_of_version_4_are_read_as_those_of_version_5() {
    let messages = json!([
        {"role": "user", "content": [{"type": "image", "image": "aGk=", "mimeType": "image/png"}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "Let me.", "signature": "s"},
            {"type": "redacted-reasoning", "data": "x"},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "args": {"at": "a"}},
        ]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "result": {"n": 1}, "isError": true},
        ]},
    ]);
    let Foreign { messages, flaws } = import(&messages);
    assert_eq!(flaws, []);
    assert!(
        matches!(&messages[0].parts[0].content, Content::Media(media) if media.media_type == "image/png")
    );
    let attached = |part: usize| -> Value {
        let metadata = messages[1].parts[part].metadata.as_deref();
        serde_json::from_str(metadata.expect("metadata")).expect("JSON")
    };
    assert_eq!(attached(0)["anthropic"], json!({"signature": "s"}));
    assert_eq!(attached(1)["anthropic"], json!({"redacted_thinking": "x"}));
    assert!(
        matches!(&messages[1].parts[2].content, Content::Call { arguments, .. } if arguments == r#"{"at":"a"}"#)
    );
    let Content::Result { given, outcome, .. } = &messages[2].parts[0].content else {
        panic!("{messages:?}")
    };
    assert_eq!(*outcome, Outcome::Error);
    assert_eq!(given, &[Given::Text(r#"{"n":1}"#.to_owned())]);
}

#[test]
fn a_denied_call_is_read_as_denied() {
    let result = |output: Value| json!({"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": output});
    let messages = json!([{"role": "tool", "content": [
        result(json!({"type": "execution-denied", "reason": "Not today."})),
        result(json!({"type": "execution-denied"})),
        result(json!({"type": "error-text", "value": "gone"})),
    ]}]);
    let Foreign { messages, flaws } = import(&messages);
    assert_eq!(flaws, []);
    let read = messages[0].parts.iter().map(|part| {
        let Content::Result { given, outcome, .. } = &part.content else {
            panic!("{:?}", part.content)
        };
        (given.clone(), *outcome)
    });
    let words = |text: &str| vec![Given::Text(text.to_owned())];
    assert_eq!(
        read.collect::<Vec<_>>(),
        [
            (words("Not today."), Outcome::Denied),
            (Vec::new(), Outcome::Denied),
            (words("gone"), Outcome::Error),
        ]
    );
}

#[test]
fn the_pieces_of_one_encrypted_thought_have_its_name_once() {
    let piece = |text: &str, encrypted: Value| {
        json!({"type": "reasoning", "text": text, "providerOptions": {
            "openai": {"itemId": "rs_1", "reasoningEncryptedContent": encrypted}}})
    };
    let messages = json!([{"role": "assistant", "content": [
        piece("A", json!("x")), piece("B", Value::Null),
    ]}]);
    let Foreign { messages, .. } = import(&messages);
    let own = |part: usize| -> Value {
        let metadata = messages[0].parts[part].metadata.as_deref();
        let metadata: Value = serde_json::from_str(metadata.expect("metadata")).expect("JSON");
        metadata["openai-responses"].clone()
    };
    assert_eq!(own(0), Value::Null);
    assert_eq!(own(1), json!({"id": "rs_1", "encrypted_content": "x"}));
}

#[test]
fn messages_of_the_ui_are_refused_and_approvals_passed_over() {
    let messages = json!([
        {"role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}]},
    ]);
    let flaws = import(&messages).flaws;
    let at: Vec<&str> = flaws.iter().map(|flaw| flaw.at.as_str()).collect();
    assert_eq!(at, ["[0].content"]);
    assert!(flaws[0].why.contains("convertToModelMessages"), "{flaws:?}");
}
