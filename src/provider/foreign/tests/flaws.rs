//! Tests of defects and their paths.

use serde_json::{Value, json};

use super::super::{FlawKind as Kind, read};
use crate::model::PromptFormat as Shape;

/// Checks that reading finds exactly these defects, all at once.
#[track_caller]
fn check(shape: Shape, messages: &Value, expected: &[(&str, Kind)]) {
    let flaws = read(shape, &messages.to_string(), "made_").flaws;
    let found: Vec<(&str, Kind)> = flaws.iter().map(|flaw| (flaw.at.as_str(), flaw.kind)).collect();
    assert_eq!(found, expected, "{messages}");
}

#[test]
fn messages_that_are_no_array_are_refused_in_every_shape() {
    for shape in [Shape::OpenAiChat, Shape::OpenAiResponses, Shape::Anthropic, Shape::Gemini, Shape::AiSdk] {
        assert_eq!(read(shape, "[1,", "").flaws[0].kind, Kind::NotJson);
        check(shape, &json!({"messages": []}), &[("", Kind::Malformed)]);
        check(shape, &json!(["Hi", 7]), &[("[0]", Kind::Malformed), ("[1]", Kind::Malformed)]);
        let many = Value::Array(vec![json!({}); 10_001]);
        check(shape, &many, &[("", Kind::TooLarge)]);
    }
}

#[test]
fn wrong_chat_messages_are_refused_with_their_places() {
    let messages = json!([
        {"role": "moderator", "content": "Hi"},
        {"content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": 7}, {"type": "video"}, {"type": "image_url"},
         {"type": "file", "file": {"file_id": "f"}}, {"type": "input_audio", "input_audio": {"format": "wav", "data": "*"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,hi"}}]},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "look"}}, {"id": "c", "type": "custom"}]},
        {"role": "tool", "content": "A cat."},
        {"role": "function", "name": "look", "content": "A cat."},
        {"role": "assistant", "audio": {"id": "a"}},
    ]);
    check(
        Shape::OpenAiChat,
        &messages,
        &[
            ("[0].role", Kind::Unsupported),
            ("[1].role", Kind::Missing),
            ("[2].content[0].text", Kind::Malformed),
            ("[2].content[1].type", Kind::Unsupported),
            ("[2].content[2].image_url", Kind::Missing),
            ("[2].content[3].file.file_data", Kind::Missing),
            ("[2].content[4].input_audio.data", Kind::Malformed),
            ("[3].content[0].image_url.url", Kind::Malformed),
            ("[4].tool_calls[0].id", Kind::Missing),
            ("[4].tool_calls[1].type", Kind::Unsupported),
            ("[5].tool_call_id", Kind::Missing),
            ("[6].role", Kind::Malformed),
            ("[7].audio", Kind::Unsupported),
        ],
    );
}

#[test]
fn wrong_anthropic_messages_are_refused_with_their_places() {
    let messages = json!([
        {"role": "user", "content": [{"text": "Hi"}, {"type": "search_result"}, {"type": "image"},
         {"type": "image", "source": {"type": "file", "file_id": "f"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {}}, {"type": "txt"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "tool_reference"}]}]},
    ]);
    check(
        Shape::Anthropic,
        &messages,
        &[
            ("[0].content[0].type", Kind::Missing),
            ("[0].content[1].type", Kind::Unsupported),
            ("[0].content[2].source", Kind::Missing),
            ("[0].content[3].source.type", Kind::Unsupported),
            ("[1].content[0].name", Kind::Missing),
            ("[1].content[1].type", Kind::Unsupported),
            ("[2].content[0].tool_use_id", Kind::Missing),
            ("[2].content[0].content[0].type", Kind::Unsupported),
        ],
    );
}

#[test]
fn wrong_response_items_are_refused_with_their_places() {
    let items = json!([
        {"content": "Hi"},
        {"type": "message", "content": "Hi"},
        {"role": "critic", "content": "Hi"},
        {"type": "item_reference", "id": "i"},
        {"type": "poem"},
        {"role": "user", "content": [{"type": "input_image", "file_id": "f"}, {"type": "input_file", "file_id": "f"}]},
        {"type": "function_call", "name": "look"},
        {"type": "function_call_output", "output": {"a": 1}},
    ]);
    check(
        Shape::OpenAiResponses,
        &items,
        &[
            ("[0].type", Kind::Missing),
            ("[1].role", Kind::Missing),
            ("[2].role", Kind::Unsupported),
            ("[3].type", Kind::Unsupported),
            ("[4].type", Kind::Unsupported),
            ("[5].content[0].image_url", Kind::Missing),
            ("[5].content[1].file_data", Kind::Missing),
            ("[6].call_id", Kind::Missing),
            ("[7].call_id", Kind::Missing),
            ("[7].output", Kind::Malformed),
        ],
    );
}

#[test]
fn wrong_gemini_contents_are_refused_with_their_places() {
    let contents = json!([
        {"role": "system", "parts": [{"text": "Be brief."}]},
        {"role": "assistant", "parts": []},
        {"role": "user", "parts": [{"poem": 1}, {"inlineData": {"mimeType": "image/png"}}]},
        {"role": "model", "parts": [{"functionCall": {"args": {}}}, {"poem": 1}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {}}}]},
        {"role": "user", "parts": "Hi"},
    ]);
    check(
        Shape::Gemini,
        &contents,
        &[
            ("[0].role", Kind::Unsupported),
            ("[1].role", Kind::Unsupported),
            ("[2].parts[0]", Kind::Unsupported),
            ("[2].parts[1].inlineData.data", Kind::Missing),
            ("[3].parts[0].functionCall.name", Kind::Missing),
            ("[3].parts[1]", Kind::Unsupported),
            ("[4].parts[0].functionResponse.name", Kind::Malformed),
            ("[5].parts", Kind::Malformed),
        ],
    );
}

#[test]
fn wrong_sdk_messages_are_refused_with_their_places() {
    let messages = json!([
        {"role": "data", "content": "Hi"},
        {"role": "user", "content": [{"type": "file", "data": {"0": 1}}, {"type": "image"}, {"type": "poem"}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "output": {"type": "poem", "value": 1}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "output": {"type": "content",
         "value": [{"type": "image-file-id", "fileId": "f"}]}}]},
    ]);
    check(
        Shape::AiSdk,
        &messages,
        &[
            ("[0].role", Kind::Unsupported),
            ("[1].content[0].data.type", Kind::Unsupported),
            ("[1].content[1].image", Kind::Missing),
            ("[1].content[2].type", Kind::Unsupported),
            ("[2].content[0].toolCallId", Kind::Missing),
            ("[3].content[0].output.type", Kind::Unsupported),
            ("[4].content[0].output.value[0].type", Kind::Unsupported),
        ],
    );
}
