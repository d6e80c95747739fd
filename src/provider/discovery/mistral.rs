//! Reads Mistral's model list: `GET models`.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Unreadable};

/// Reads the list.
pub(super) fn read(answer: &Value) -> Result<ModelList, Unreadable> {
    ModelList::of(list::entries(answer, "data")?, "id", model)
}

fn model(entry: &Value) -> Option<ModelFacts> {
    let can = |what: &str| entry["capabilities"][what].as_bool();
    if can("completion_chat") == Some(false) {
        return None;
    }
    Some(ModelFacts {
        context_window: list::tokens(&entry["max_context_length"]),
        input_media: list::media(&[(can("vision"), "image/*"), (can("audio"), "audio/*")]),
        tools: can("function_calling"),
        ..ModelFacts::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn windows_and_capabilities_are_read_and_models_that_do_not_chat_left_out() {
        let capabilities = |chat: bool, vision: bool| json!({"completion_chat": chat, "completion_fim": false, "function_calling": true, "vision": vision});
        let answer = json!({"object": "list", "data": [
            {"id": "seer", "max_context_length": 131072, "capabilities": capabilities(true, true), "type": "base"},
            {"id": "reader", "max_context_length": 32768, "capabilities": capabilities(true, false)},
            {"id": "embedder", "max_context_length": 8192, "capabilities": capabilities(false, false)},
            {"id": "silent"},
        ]});
        let listed = read(&answer).expect("a list");
        let names: Vec<&String> = listed.models.keys().collect();
        assert_eq!(names, ["reader", "seer", "silent"]);
        let seer = ModelFacts {
            context_window: Some(131_072),
            input_media: Some(vec!["image/*".to_owned()]),
            tools: Some(true),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("seer"), Some(&seer));
        let reader = listed.get("reader").expect("a model");
        assert_eq!((reader.context_window, reader.input_media.as_deref()), (Some(32_768), Some(&[][..])));
    }
}
