//! Tests of reading messages and writing them again.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::provider::{http::lenient, recordings};

/// Conversations in the format in which contextd writes them, each with every kind of content of
/// that format.
pub(super) fn conversations() -> Vec<(Case, Value)> {
    let [chat, anthropic, responses, gemini] = SERVICES;
    let picture = "aGVsbG8=";
    let in_chat = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}},
            {"type": "input_audio", "input_audio": {"data": picture, "format": "mp3"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{picture}")}}]},
        {"role": "assistant", "content": "Both.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}],
         "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"n\": 1.50}"}},
            {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "t"}}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: gone"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Why?"},
    ]);
    let in_messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}},
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}, "title": "a.txt"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "text", "text": "Both.", "citations": [{"type": "web_search_result_location", "url": "https://a.example", "title": "A", "cited_text": "a", "encrypted_index": "e"}]},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"n": 1}},
            {"type": "tool_use", "id": "c2", "name": "list", "input": {}, "caller": {"type": "direct"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": [{"type": "text", "text": "gone"}]},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "See:"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}]},
            {"type": "text", "text": "Well?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
    ]);
    let in_responses = json!([
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": format!("data:image/png;base64,{picture}"), "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{picture}")},
            {"type": "input_file", "file_url": "https://a.example/b.pdf"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A"}, {"type": "summary_text", "text": "B"}], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
            {"type": "output_text", "text": "Both.", "annotations": []}, {"type": "refusal", "refusal": "No."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{\"n\": 1.50}"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "list", "input": "all"},
        {"type": "function_call_output", "call_id": "c1", "output": "Error: gone"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "See:"},
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "auto"}]},
        {"type": "message", "role": "assistant", "content": "One."},
        {"type": "message", "role": "assistant", "content": "Two."},
    ]);
    let in_gemini = json!([
        {"role": "user", "parts": [{"text": "What is this?"},
            {"inlineData": {"mimeType": "image/png", "data": picture}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/b.pdf"}}]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": true, "thoughtSignature": "s"},
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"text": "Both."},
            {"functionCall": {"name": "look", "args": {"n": 1}}, "thoughtSignature": "t"},
            {"functionCall": {"id": "own", "name": "_3d", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "look", "response": {"error": "gone"}}},
            {"functionResponse": {"id": "own", "name": "_3d", "response": {"output": "See:"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": picture}}]}},
            {"text": "Well?"}]},
        {"role": "model", "parts": [{"text": "A cat."}, {"text": "", "thoughtSignature": "u"}]},
    ]);
    let in_sdk = json!([
        {"role": "system", "content": "Be brief.", "providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}},
        {"role": "user", "content": [{"type": "text", "text": "What is this?", "providerOptions": {"x": {"y": 1}}},
            {"type": "file", "data": picture, "mediaType": "image/png"},
            {"type": "file", "data": "https://a.example/b.pdf", "mediaType": "application/pdf", "filename": "b.pdf"}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": {"signature": "s"}}},
            {"type": "tool-call", "toolCallId": "s1", "toolName": "web_search", "input": {"query": "tea"}, "providerExecuted": true},
            {"type": "tool-result", "toolCallId": "s1", "toolName": "web_search", "output": {"type": "json", "value": []}},
            {"type": "text", "text": "Both."},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"n": 1}},
            {"type": "tool-call", "toolCallId": "c2", "toolName": "list", "input": {}},
            {"type": "tool-call", "toolCallId": "c3", "toolName": "look", "input": {}},
            {"type": "tool-call", "toolCallId": "c4", "toolName": "look", "input": {}}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": {"type": "error-json", "value": {"why": "gone"}}},
            {"type": "tool-result", "toolCallId": "c3", "toolName": "look", "output": {"type": "execution-denied", "reason": "Not today."}},
            {"type": "tool-result", "toolCallId": "c4", "toolName": "look", "output": {"type": "execution-denied"}},
            {"type": "tool-result", "toolCallId": "c2", "toolName": "list", "output": {"type": "content", "value": [
                {"type": "text", "text": "See:"}, {"type": "media", "data": picture, "mediaType": "image/png"}]}}]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Why?"},
    ]);
    let in_sdk_7 = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?", "providerOptions": {"x": {"y": 1}}},
            {"type": "file", "data": {"type": "data", "data": picture}, "mediaType": "image/png"},
            {"type": "file", "data": "https://a.example/b.pdf", "mediaType": "application/pdf", "filename": "b.pdf"}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": {"signature": "s"}}},
            {"type": "reasoning-file", "data": {"type": "data", "data": picture}, "mediaType": "image/png"},
            {"type": "text", "text": "Both."},
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"n": 1}}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": {"type": "content", "value": [
                {"type": "text", "text": "See:"},
                {"type": "file", "data": {"type": "data", "data": picture}, "mediaType": "image/png"},
                {"type": "file-url", "url": "https://a.example/c.png", "mediaType": "image/png"}]}}]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Why?"},
    ]);
    vec![
        (anthropic.by_sdk_7(), in_sdk_7),
        (chat, in_chat),
        (anthropic, in_messages),
        (responses, in_responses),
        (gemini, in_gemini),
        (anthropic.by_sdk(), in_sdk),
    ]
}

/// Row S15
#[test]
fn a_conversation_in_the_form_of_its_service_comes_back_as_it_came() {
    for (case, messages) in conversations() {
        let back = case.back(&messages);
        let pairs = items(&back).iter().zip(items(&messages));
        for (at, (back, sent)) in pairs.enumerate() {
            assert_eq!(back, sent, "{:?}, {at}", case.shape);
        }
        assert_eq!(items(&back).len(), items(&messages).len());
    }
}

fn items(messages: &Value) -> &[Value] {
    messages.as_array().expect("an array")
}

/// A conversation around a recorded response.
pub(super) fn around(model: &str, mut parts: Vec<Part>) -> Vec<Message> {
    let mut results = Vec::new();
    for part in &mut parts {
        match &mut part.content {
            Content::ProviderItem(item) => PROVIDER.clone_into(&mut item.provider),
            Content::ToolCall(call) => {
                results.push(Part::new(Content::ToolResult(ToolResult {
                    call: call.id.clone(),
                    name: call.name.clone(),
                    parts: vec!["Seen.".into()],
                    outcome: ToolOutcome::Success,
                    truncation: None,
                    display_text: String::new(),
                })));
            }
            Content::Text(_)
            | Content::Reasoning { .. }
            | Content::ToolResult(_)
            | Content::Refusal(_)
            | Content::Media(_)
            | Content::Unknown(_) => {}
        }
    }
    let mut messages = vec![testing::user("Go on."), written_by(model, parts)];
    if !results.is_empty() {
        messages.push(testing::message(Role::Tool, results));
    }
    messages.push(testing::user("And now?"));
    messages
}

/// The recorded responses of a service: file and parts.
pub(super) fn recorded(case: Case) -> Vec<(String, Vec<Part>)> {
    let answers = match case.recorded {
        "openai_chat" => {
            recordings::answers(case.recorded, |_| openai::decode::Decoder::new(&openai::dialect::COMPATIBLE, None))
        }
        "anthropic" => recordings::answers(case.recorded, |_| provider::anthropic::decode::Decoder::new(None)),
        "openai_responses" => recordings::answers(case.recorded, |_| {
            let dialect = responses::dialect::named("openai").expect("a dialect");
            responses::decode::Decoder::new(dialect)
        }),
        _ => recordings::answers(case.recorded, |_| provider::gemini::decode::Decoder::default()),
    };
    answers.into_iter().map(|(file, _, answer)| (file, answer.parts)).collect()
}

/// Row S15
#[test]
fn a_recorded_conversation_comes_back_as_it_was_sent() {
    let mut read = 0;
    for service in SERVICES {
        for (file, parts) in recorded(service) {
            for case in [service, service.by_sdk()] {
                let sent = case.render(around(case.model, parts.clone()), Contents::default());
                assert_eq!(case.back(&sent), sent, "{file} as {:?}", case.shape);
                read += 1;
            }
        }
    }
    assert!(read > 500, "{read}");
}

/// The metadata that a model attaches to its reasoning.
fn proof(shape: PromptFormat) -> Value {
    match shape {
        PromptFormat::Anthropic => json!({"anthropic": {"signature": "s"}}),
        PromptFormat::OpenAiResponses => {
            json!({"openai-responses": {"id": "rs_1", "encrypted_content": "x"}})
        }
        PromptFormat::Gemini => json!({"gemini": {"thoughtSignature": "s"}}),
        PromptFormat::OpenAiChat
        | PromptFormat::AiSdk
        | PromptFormat::AiSdk7
        | PromptFormat::Neutral
        | PromptFormat::Native => {
            json!({"openai": {"reasoning_details": [{"type": "reasoning.text", "text": "t"}]}})
        }
    }
}

/// The calls of a conversation: tool, and arguments as they are sent.
pub(super) fn calls(messages: &[Message]) -> Vec<(String, Value)> {
    let call = |part: &Part| match &part.content {
        Content::ToolCall(call) => {
            let sent = call.has_object().then_some(call.arguments.as_str());
            let arguments = lenient::value(sent.unwrap_or("{}")).expect("JSON");
            Some((call.name.clone(), arguments))
        }
        Content::Text(_)
        | Content::Reasoning { .. }
        | Content::ToolResult(_)
        | Content::Refusal(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => None,
    };
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|stored| call(&stored.part)).collect()
}

/// The text of a conversation, without whitespace: merging messages of one role adds a break
/// between them.
pub(super) fn words(messages: &[Message]) -> String {
    let said = |part: &Part| match &part.content {
        Content::Text(text) | Content::Refusal(text) => text.clone(),
        Content::Reasoning { .. }
        | Content::ToolCall(_)
        | Content::ToolResult(_)
        | Content::Media(_)
        | Content::ProviderItem(_)
        | Content::Unknown(_) => String::new(),
    };
    let answers = messages.iter().filter(|message| message.role == Role::Assistant);
    let parts = answers.flat_map(|message| &message.parts);
    let words: String = parts.map(|stored| said(&stored.part)).collect();
    words.split_whitespace().collect()
}

/// Texts with characters that JSON escapes; never blank.
fn text() -> impl Strategy<Value = String> {
    "[a-zäß😀\"\\\\\n ]{0,12}[a-z]"
}

fn medium() -> impl Strategy<Value = (String, Vec<u8>)> {
    let kinds =
        prop_oneof![Just("image/png".to_owned()), Just("application/pdf".to_owned()), Just("text/plain".to_owned()),];
    (kinds, prop::collection::vec(97_u8..123, 1..20))
}

/// An element of a user message or a tool result.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Words(String),
    Medium(String, Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        3 => text().prop_map(Piece::Words),
        1 => medium().prop_map(|(media_type, data)| Piece::Medium(media_type, data)),
    ]
}

/// An element of an assistant message.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Words(String),
    Thought(String, bool),
    Refusal(String),
    Call(String, Vec<Piece>, ToolOutcome),
}

fn said() -> impl Strategy<Value = Said> {
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"a": [1.50, "\ud83d"]}"#.to_owned()),
        Just("{".to_owned()),
        Just(String::new()),
    ];
    let outcomes = prop_oneof![Just(ToolOutcome::Success), Just(ToolOutcome::Error), Just(ToolOutcome::Denied),];
    prop_oneof![
        2 => text().prop_map(Said::Words),
        2 => (text(), any::<bool>()).prop_map(|(text, proven)| Said::Thought(text, proven)),
        1 => text().prop_map(Said::Refusal),
        3 => (arguments, prop::collection::vec(piece(), 0..3), outcomes)
            .prop_map(|(arguments, given, outcome)| Said::Call(arguments, given, outcome)),
    ]
}

/// A message.
#[derive(Debug, Clone)]
pub(super) enum Turn {
    User(Vec<Piece>),
    Instructions(String),
    Model(Vec<Said>),
}

pub(super) fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => prop::collection::vec(piece(), 1..4).prop_map(Turn::User),
        1 => text().prop_map(Turn::Instructions),
        3 => prop::collection::vec(said(), 1..5).prop_map(Turn::Model),
    ]
}

/// A conversation in stored form.
pub(super) struct Stored<'a> {
    pub(super) case: Case,
    pub(super) contents: &'a mut Contents,
    pub(super) messages: Vec<Message>,
    pub(super) calls: usize,
}

impl Stored<'_> {
    pub(super) fn add(&mut self, turn: Turn) {
        match turn {
            Turn::User(pieces) => {
                let part = |given| match given {
                    OutputPart::Text(text) => Part::text(text),
                    OutputPart::Media(media) => Part::new(Content::Media(media)),
                };
                let parts = pieces.into_iter().map(|piece| part(self.given(piece))).collect();
                self.messages.push(testing::message(Role::User, parts));
            }
            Turn::Instructions(text) => {
                let parts = vec![Part::text(text)];
                self.messages.push(testing::message(Role::System, parts));
            }
            Turn::Model(said) => self.answer(said),
        }
    }

    fn answer(&mut self, said: Vec<Said>) {
        let mut parts = Vec::new();
        let mut results = Vec::new();
        for said in said {
            parts.push(match said {
                Said::Words(text) => Part::text(text),
                Said::Refusal(text) => Part::new(Content::Refusal(text)),
                Said::Thought(text, proven) => Part {
                    provider_metadata: proven.then(|| proof(self.case.shape).to_string()),
                    ..Part::new(Content::Reasoning { text, redacted: false })
                },
                Said::Call(arguments, given, outcome) => {
                    self.calls += 1;
                    let id = CallId::new(format!("call_{}", self.calls));
                    let name = ["look", "list"][self.calls % 2].to_owned();
                    results.push(Part::new(Content::ToolResult(ToolResult {
                        call: id.clone(),
                        name: name.clone(),
                        parts: given.into_iter().map(|piece| self.given(piece)).collect(),
                        outcome,
                        truncation: None,
                        display_text: String::new(),
                    })));
                    Part::new(Content::ToolCall(ToolCall { id, name, arguments }))
                }
            });
        }
        self.messages.push(written_by(self.case.model, parts));
        if !results.is_empty() {
            self.messages.push(testing::message(Role::Tool, results));
        }
    }

    fn given(&mut self, piece: Piece) -> OutputPart {
        match piece {
            Piece::Words(text) => OutputPart::Text(text),
            Piece::Medium(media_type, data) => OutputPart::Media(Media {
                source: Source::Blob(keep(self.contents, &media_type, data)),
                media_type,
                filename: String::new(),
            }),
        }
    }
}

/// Arbitrary JSON with the keywords of the formats.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "user",
        "assistant",
        "model",
        "tool",
        "function",
        "system",
        "text",
        "image",
        "file",
        "message",
        "tool-call",
        "tool-result",
        "tool_use",
        "tool_result",
        "thinking",
        "reasoning",
        "function_call",
        "function_call_output",
        "web_search_call",
        "input_image",
        "image_url",
        "base64",
        "content",
        "json",
        "error-json",
        "data:image/png;base64,aGk=",
        "data:",
        "https://a.example/é",
        "",
    ]);
    let leaf = prop_oneof![
        3 => word.prop_map(|word| json!(word)),
        1 => Just(Value::Null),
        1 => any::<i8>().prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|bool| json!(bool)),
    ];
    let name = prop::sample::select(vec![
        "role",
        "type",
        "content",
        "parts",
        "text",
        "source",
        "data",
        "url",
        "output",
        "value",
        "input",
        "arguments",
        "args",
        "function",
        "tool_calls",
        "function_call",
        "functionCall",
        "functionResponse",
        "response",
        "name",
        "id",
        "call_id",
        "tool_call_id",
        "tool_use_id",
        "toolCallId",
        "toolName",
        "providerOptions",
        "anthropic",
        "openai",
        "itemId",
        "signature",
        "summary",
        "encrypted_content",
        "image_url",
        "inlineData",
        "mimeType",
        "thoughtSignature",
        "reasoning_details",
        "citations",
        "annotations",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 1..7).prop_map(|members| {
                let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_json_is_read_or_refused(messages in prop::collection::vec(anything(), 0..4)) {
        for service in SERVICES {
            for case in [service, service.by_sdk()] {
                let json = Value::Array(messages.clone()).to_string();
                let ForeignConversation { messages, flaws } = read(case.shape, &json, "made_");
                prop_assert!(!messages.is_empty() || !flaws.is_empty());
                prop_assert!(messages.iter().all(|message| !message.parts.is_empty()));
                prop_assert!(flaws.iter().all(|flaw| flaw.at.is_empty() || flaw.at.starts_with('[')));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same_conversation(turns in prop::collection::vec(turn(), 1..6)) {
        for service in SERVICES {
            for case in [service, service.by_sdk()] {
                let mut contents = Contents::default();
                let mut stored = Stored { case: service, contents: &mut contents, messages: Vec::new(), calls: 0 };
                // Every conversation has some content that is sent.
                stored.add(Turn::User(vec![Piece::Words("Hi".to_owned())]));
                turns.iter().cloned().for_each(|turn| stored.add(turn));
                let messages = stored.messages;
                let before = (calls(&messages), words(&messages));
                let sent = case.render(messages, contents);
                let (messages, contents) = case.import(&sent);
                prop_assert_eq!((calls(&messages), words(&messages)), before, "{:?}", case.shape);
                prop_assert_eq!(case.render(messages, contents), sent, "{:?}", case.shape);
            }
        }
    }
}
