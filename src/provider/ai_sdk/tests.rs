//! Tests of reading and writing messages of the AI SDK.

use serde_json::{Value, json};

use crate::{
    context::testing,
    model::{
        BlobId, CallId, Content as Stored, Contents, Media, OutputPart as StoredGiven, Part, Prompt, PromptFormat,
        Role, ToolCall, ToolOutcome, ToolResult,
        media::{BlobRef, Source},
    },
    provider::foreign::{self, ForeignContent as Content, ForeignConversation, ForeignSource},
};

fn import(messages: &Value) -> ForeignConversation {
    foreign::read(PromptFormat::AiSdk, &messages.to_string(), "made_")
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
    let ForeignConversation { messages, flaws } = import(&messages);
    assert_eq!(flaws, []);
    assert!(matches!(&messages[0].parts[0].content, Content::Media(media) if media.media_type == "image/png"));
    let attached = |part: usize| -> Value {
        let metadata = messages[1].parts[part].metadata.as_deref();
        serde_json::from_str(metadata.expect("metadata")).expect("JSON")
    };
    assert_eq!(attached(0)["anthropic"], json!({"signature": "s"}));
    assert_eq!(attached(1)["anthropic"], json!({"redacted_thinking": "x"}));
    assert!(matches!(&messages[1].parts[2].content, Content::Call { arguments, .. } if arguments == r#"{"at":"a"}"#));
    let Content::Result { parts: given, outcome, .. } = &messages[2].parts[0].content else { panic!("{messages:?}") };
    assert_eq!(*outcome, ToolOutcome::Error);
    assert_eq!(given, &[Content::Text(r#"{"n":1}"#.to_owned())]);
}

#[test]
fn a_denied_call_is_read_as_denied() {
    let result =
        |output: Value| json!({"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": output});
    let messages = json!([{"role": "tool", "content": [
        result(json!({"type": "execution-denied", "reason": "Not today."})),
        result(json!({"type": "execution-denied"})),
        result(json!({"type": "error-text", "value": "gone"})),
    ]}]);
    let ForeignConversation { messages, flaws } = import(&messages);
    assert_eq!(flaws, []);
    let read = messages[0].parts.iter().map(|part| {
        let Content::Result { parts: given, outcome, .. } = &part.content else { panic!("{:?}", part.content) };
        (given.clone(), *outcome)
    });
    let words = |text: &str| vec![Content::Text(text.to_owned())];
    assert_eq!(
        read.collect::<Vec<_>>(),
        [
            (words("Not today."), ToolOutcome::Denied),
            (Vec::new(), ToolOutcome::Denied),
            (words("gone"), ToolOutcome::Error),
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
    let ForeignConversation { messages, .. } = import(&messages);
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

#[test]
fn files_of_version_7_say_what_their_data_is() {
    let file = |media_type: &str, data: Value| json!({"type": "file", "mediaType": media_type, "data": data});
    let messages = json!([
        {"role": "user", "content": [
            file("image/png", json!({"type": "data", "data": "aGk="})),
            file("image", json!({"type": "url", "url": "https://a.example/cat"})),
            file("image/*", json!({"type": "url", "url": "data:image/webp;base64,aGk="})),
            file("text", json!({"type": "text", "text": "hello"})),
            file("audio", json!("aGk=")),
        ]},
        {"role": "assistant", "content": [
            {"type": "reasoning-file", "mediaType": "image/png", "data": {"type": "data", "data": "aGk="}},
            {"type": "custom", "kind": "openai.compaction", "providerOptions": {"openai": {"id": "c"}}},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output":
            {"type": "content", "value": [{"type": "text", "text": "See:"},
                {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": "aGk="}}]}}]},
    ]);
    for shape in [PromptFormat::AiSdk, PromptFormat::AiSdk7] {
        let ForeignConversation { messages, flaws } = foreign::read(shape, &messages.to_string(), "made_");
        assert_eq!(flaws, []);
        let media = messages[0].parts.iter().map(|part| {
            let Content::Media(media) = &part.content else { panic!("{part:?}") };
            (media.media_type.as_str(), media.source.clone())
        });
        let data = |text: &str| ForeignSource::Data(text.as_bytes().to_vec());
        assert_eq!(
            media.collect::<Vec<_>>(),
            [
                ("image/png", data("hi")),
                ("image/jpeg", ForeignSource::Url("https://a.example/cat".to_owned())),
                ("image/webp", data("hi")),
                ("text/plain", data("hello")),
                ("audio/mpeg", data("hi")),
            ]
        );
        let kinds = messages[1].parts.iter().map(|part| {
            if let Content::Item { kind, .. } = &part.content {
                return kind.as_str();
            }
            assert!(matches!(part.content, Content::Call { .. }), "{part:?}");
            "call"
        });
        assert_eq!(kinds.collect::<Vec<_>>(), ["reasoning-file", "custom", "call"]);
        let Content::Result { parts: given, .. } = &messages[2].parts[0].content else { panic!("{messages:?}") };
        assert!(matches!(&given[1], Content::Media(media) if media.source == data("hi")));
    }
}

#[test]
fn files_of_version_7_that_only_a_service_has_are_refused() {
    let messages = json!([{"role": "user", "content": [
        {"type": "file", "mediaType": "image/png", "data": {"type": "reference", "reference": {"openai": "file-1"}}},
        {"type": "file", "mediaType": "image/png", "data": {"openai": "file-1"}},
        {"type": "file", "mediaType": "image/png", "data": {"type": "data"}},
    ]}]);
    let flaws = import(&messages).flaws;
    let at: Vec<&str> = flaws.iter().map(|flaw| flaw.at.as_str()).collect();
    assert_eq!(at, ["[0].content[0].data.type", "[0].content[1].data.type", "[0].content[2].data.data"]);
}

/// A conversation with an image from the user and one from a tool, in the format of each version.
#[test]
fn a_prompt_is_written_in_the_form_of_its_version() {
    let mut contents = Contents::default();
    let id = BlobId::new("b");
    contents.insert(id.clone(), b"hi".to_vec().into());
    let medium = |source: Source| Media { media_type: "image/png".to_owned(), source, filename: String::new() };
    let here = medium(Source::Blob(BlobRef { id, bytes: 2, pixels: None }));
    let there = medium(Source::Url("https://a.example/b.png".to_owned()));
    let call = ToolCall { id: CallId::new("c1"), name: "look".to_owned(), arguments: "{}".to_owned() };
    let result = ToolResult {
        call: call.id.clone(),
        name: call.name.clone(),
        parts: vec![StoredGiven::Media(here.clone()), StoredGiven::Media(there.clone())],
        outcome: ToolOutcome::Success,
        truncation: None,
        display_text: String::new(),
    };
    let media = [here, there].map(|media| Part::new(Stored::Media(media)));
    let messages = vec![
        testing::message(Role::User, media.to_vec()),
        testing::message(Role::Assistant, vec![Part::new(Stored::ToolCall(call))]),
        testing::message(Role::Tool, vec![Part::new(Stored::ToolResult(result))]),
        testing::message(Role::System, vec![Part::text("Hurry.".to_owned())]),
    ];
    let prompt = Prompt { contents, ..testing::prompt(messages) };
    let written = |shape| -> Value {
        let request = crate::provider::request_in(shape, &prompt, "main").expect("a shape");
        assert_eq!(request.shape, shape);
        serde_json::from_slice(&request.body).expect("JSON")
    };
    let (five, seven) = (written(PromptFormat::AiSdk), written(PromptFormat::AiSdk7));
    let files = |body: &Value| {
        let said = body["messages"][0]["content"].clone();
        (said[0]["data"].clone(), said[1]["data"].clone())
    };
    let url = json!("https://a.example/b.png");
    assert_eq!(files(&five), (json!("aGk="), url.clone()));
    let tagged = json!({"type": "data", "data": "aGk="});
    assert_eq!(files(&seven), (tagged.clone(), url.clone()));
    let given = |body: &Value| body["messages"][2]["content"][0]["output"]["value"].clone();
    assert_eq!(
        given(&five),
        json!([{"type": "media", "data": "aGk=", "mediaType": "image/png"}, {"type": "image-url", "url": url}])
    );
    assert_eq!(
        given(&seven),
        json!([{"type": "file", "data": tagged, "mediaType": "image/png"},
            {"type": "file-url", "url": url, "mediaType": "image/png"}])
    );
    assert_eq!((seven.get("system"), &seven["allowSystemInMessages"]), (None, &json!(true)));
    assert_eq!(five.get("allowSystemInMessages"), None);
}
