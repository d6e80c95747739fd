//! Tests of exporting messages and reading them again.

use proptest::prelude::*;

use super::{round_trips::*, *};
use crate::provider::{foreign::write, responses::CustomCalls};

/// Exports a conversation. Also returns the number of notes.
fn exported(shape: PromptFormat, messages: &[Message], contents: &Contents) -> (Value, usize) {
    let mut text_calls = CustomCalls::default();
    let mut elements = Vec::new();
    let mut notes = 0;
    for message in messages {
        let written = write(shape, message, contents, &text_calls);
        text_calls.add(message);
        let json: Vec<Value> = serde_json::from_str(&written.json).expect("an array");
        elements.extend(json);
        notes += written.notes.len();
    }
    (Value::Array(elements), notes)
}

/// The content of the messages without their ids.
fn content(messages: &[Message]) -> Vec<(Role, Vec<Part>)> {
    let parts = |message: &Message| message.parts.iter().map(|it| it.part.clone()).collect();
    let content = |message: &Message| (message.role, parts(message));
    messages.iter().map(content).collect()
}

/// Row S15
#[test]
fn what_is_imported_is_exported_and_imported_again_as_the_same_conversation() {
    for (case, messages) in conversations() {
        let (mut stored, contents) = case.import(&messages);
        if case.shape == PromptFormat::Gemini {
            // The export names all calls, so they need names from the start.
            let (named, _) = exported(case.shape, &stored, &contents);
            stored = case.import(&named).0;
        }
        let (json, notes) = exported(case.shape, &stored, &contents);
        assert_eq!(notes, 0, "{:?}", case.shape);
        let (again, _) = case.import(&json);
        assert_eq!(content(&again), content(&stored), "{:?}", case.shape);
    }
}

/// Row S15
#[test]
fn recorded_answers_are_exported_and_imported_again_as_they_were() {
    let mut read = 0;
    for case in SERVICES {
        for (file, parts) in recorded(case) {
            let (stored, contents) = {
                // Compared in imported form: the additional data that a decoder keeps is not part
                // of any message.
                let said = around(case.model, parts);
                let (json, _) = exported(case.shape, &said, &Contents::default());
                case.import(&json)
            };
            let (json, _) = exported(case.shape, &stored, &contents);
            let (again, _) = case.import(&json);
            assert_eq!(content(&again), content(&stored), "{file}");
            read += 1;
        }
    }
    assert!(read > 250, "{read}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Row S15
    #[test]
    fn a_conversation_of_any_service_is_the_same_after_an_export_in_any_shape(
        service in prop::sample::select(SERVICES.to_vec()),
        turns in prop::collection::vec(turn(), 1..6),
    ) {
        let mut contents = Contents::default();
        let mut stored = Stored {
            case: service,
            contents: &mut contents,
            messages: Vec::new(),
            calls: 0,
        };
        // A conversation of which nothing can be written would be invalid.
        stored.add(Turn::User(vec![Piece::Words("Hi".to_owned())]));
        turns.into_iter().for_each(|turn| stored.add(turn));
        let messages = stored.messages;
        for shape in [
            PromptFormat::OpenAiChat,
            PromptFormat::OpenAiResponses,
            PromptFormat::Anthropic,
            PromptFormat::Gemini,
            PromptFormat::AiSdk,
            PromptFormat::AiSdk7,
        ] {
            let case = Case { shape, ..service };
            let (json, _) = exported(shape, &messages, &contents);
            let (again, _) = case.import(&json);
            prop_assert_eq!(words(&again), words(&messages), "{:?}", shape);
            prop_assert_eq!(calls(&again), calls(&messages), "{:?}", shape);
            let results = |messages: &[Message]| -> Vec<(CallId, String)> {
                let results = messages.iter().flat_map(Message::results);
                let text = |result: &ToolResult| result.texts().collect::<Vec<_>>().join("\n");
                results.map(|it| (it.call.clone(), text(it))).collect()
            };
            prop_assert_eq!(results(&again), results(&messages), "{:?}", shape);
            let media = |messages: &[Message]| messages.iter().flat_map(Message::media).count();
            prop_assert_eq!(media(&again), media(&messages), "{:?}", shape);
        }
    }
}
