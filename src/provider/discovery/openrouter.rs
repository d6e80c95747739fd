//! Reads OpenRouter's model list: `GET models`.
//!
//! The listed context window of a model is the largest of all its providers. A request goes to
//! `top_provider` first, whose window may be smaller. The smaller one is used, so that a prompt
//! fits wherever it is sent.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Unreadable};

/// Reads the list.
pub(super) fn read(answer: &Value) -> Result<ModelList, Unreadable> {
    ModelList::of(list::entries(answer, "data")?, "id", model)
}

fn model(entry: &Value) -> Option<ModelFacts> {
    let makes = &entry["architecture"]["output_modalities"];
    if list::has(makes, "text") == Some(false) {
        return None;
    }
    let top = &entry["top_provider"];
    let windows = [list::tokens(&entry["context_length"]), list::tokens(&top["context_length"])];
    let takes = |kind| list::has(&entry["architecture"]["input_modalities"], kind);
    // Every model accepts a limit on its response, so an empty list means that nothing is known.
    let parameters =
        Some(&entry["supported_parameters"]).filter(|all| all.as_array().is_some_and(|all| !all.is_empty()));
    let knows = |parameter| parameters.and_then(|all| list::has(all, parameter));
    Some(ModelFacts {
        display_name: list::text(&entry["name"]).map(str::to_owned),
        context_window: windows.into_iter().flatten().min(),
        max_output: list::tokens(&top["max_completion_tokens"]),
        input_media: list::media(&[
            (takes("image"), "image/*"),
            (takes("file"), "application/pdf"),
            (takes("audio"), "audio/*"),
            (takes("video"), "video/*"),
        ]),
        tools: knows("tools"),
        parallel_tools: knows("parallel_tool_calls").filter(|known| *known),
        json_schema: knows("structured_outputs"),
        temperature: knows("temperature"),
        reasoning_efforts: list::efforts(list::words(&entry["reasoning"]["supported_efforts"])),
        ..ModelFacts::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::generation::ReasoningEffort::{High, Low};

    #[test]
    fn a_model_is_read_with_the_smaller_of_its_two_windows() {
        let answer = json!({"data": [
            {
                "id": "maker/large",
                "name": "Maker: Large",
                "context_length": 1_000_000,
                "architecture": {"input_modalities": ["text", "image", "file"], "output_modalities": ["text"]},
                "top_provider": {"context_length": 200_000, "max_completion_tokens": 64_000, "is_moderated": false},
                "supported_parameters": ["max_tokens", "tools", "tool_choice", "structured_outputs", "temperature"],
                "reasoning": {"supported_efforts": ["high", "low", "extreme"], "mandatory": false},
            },
            {
                "id": "maker/plain",
                "context_length": 8_192,
                "top_provider": {"context_length": null, "max_completion_tokens": null},
                "supported_parameters": ["max_tokens"],
            },
            {"id": "maker/silent"},
            {"id": "maker/painter", "architecture": {"output_modalities": ["image"]}},
        ]});
        let listed = read(&answer).expect("a list");
        assert_eq!(listed.get("maker/painter"), None);
        let large = ModelFacts {
            display_name: Some("Maker: Large".to_owned()),
            context_window: Some(200_000),
            max_output: Some(64_000),
            input_media: Some(vec!["image/*".to_owned(), "application/pdf".to_owned()]),
            tools: Some(true),
            parallel_tools: None,
            json_schema: Some(true),
            temperature: Some(true),
            reasoning_efforts: Some(vec![Low, High]),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("maker/large"), Some(&large));
        let plain = ModelFacts {
            context_window: Some(8_192),
            tools: Some(false),
            json_schema: Some(false),
            temperature: Some(false),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("maker/plain"), Some(&plain));
        assert_eq!(listed.get("maker/silent"), Some(&ModelFacts::default()));
    }
}
