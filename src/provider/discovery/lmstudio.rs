//! Reads the models of LM Studio: `GET /api/v1/models`, or `GET /api/v0/models` of older versions.
//! A model that is not loaded has no context window yet: it is loaded with the one that the user
//! has configured.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Unreadable};

/// Reads `/api/v1/models`.
pub(super) fn read(answer: &Value) -> Result<ModelList, Unreadable> {
    let entries = list::entries(answer, "models")?;
    let mut listed = ModelList::of(entries, "key", model)?;
    // An instance can be called by its own name.
    for entry in entries {
        let Some(model) = entry["key"].as_str().and_then(|key| listed.models.get(key)) else {
            continue;
        };
        let model = model.clone();
        for instance in instances(entry) {
            if let Some(name) = list::text(&instance["id"]).map(str::to_owned) {
                let context_window = loaded(instance);
                let instance = ModelFacts { context_window, ..model.clone() };
                listed.models.entry(name).or_insert(instance);
            }
        }
    }
    Ok(listed)
}

/// Reads `/api/v0/models`.
pub(super) fn read_older(answer: &Value) -> Result<ModelList, Unreadable> {
    ModelList::of(list::entries(answer, "data")?, "id", older)
}

fn model(entry: &Value) -> Option<ModelFacts> {
    if list::answers_without_text(entry) {
        return None;
    }
    let capabilities = &entry["capabilities"];
    let efforts = list::words(&capabilities["reasoning"]["allowed_options"]);
    Some(ModelFacts {
        display_name: list::text(&entry["display_name"]).map(str::to_owned),
        // It is unknown which of several instances responds.
        context_window: instances(entry).filter_map(loaded).min(),
        input_media: list::media(&[(capabilities["vision"].as_bool(), "image/*")]),
        // Other models can be sent tools too.
        tools: capabilities["trained_for_tool_use"].as_bool().filter(|trained| *trained),
        reasoning_efforts: list::efforts(efforts),
        ..ModelFacts::default()
    })
}

fn older(entry: &Value) -> Option<ModelFacts> {
    if list::answers_without_text(entry) {
        return None;
    }
    let is_loaded = entry["state"] == "loaded";
    let pictures = entry["type"].as_str().map(|kind| kind == "vlm");
    Some(ModelFacts {
        context_window: list::tokens(&entry["loaded_context_length"]).filter(|_| is_loaded),
        input_media: list::media(&[(pictures, "image/*")]),
        tools: list::has(&entry["capabilities"], "tool_use").filter(|trained| *trained),
        ..ModelFacts::default()
    })
}

fn instances(entry: &Value) -> impl Iterator<Item = &Value> {
    entry["loaded_instances"].as_array().into_iter().flatten()
}

/// The context window that an instance was loaded with.
fn loaded(instance: &Value) -> Option<u32> {
    list::tokens(&instance["config"]["context_length"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::generation::ReasoningEffort::{High, Low};

    #[test]
    fn the_window_is_the_one_that_a_model_was_loaded_with() {
        let answer = json!({"models": [
            {
                "type": "llm", "key": "maker/loaded", "display_name": "Loaded", "max_context_length": 131_072,
                "loaded_instances": [
                    {"id": "maker/loaded", "config": {"context_length": 16_384}},
                    {"id": "maker/loaded:2", "config": {"context_length": 8_192}},
                ],
                "capabilities": {"vision": true, "trained_for_tool_use": true, "reasoning": {"allowed_options": ["low", "high"], "default": "low"}},
            },
            {
                "type": "llm", "key": "maker/idle", "max_context_length": 131_072, "loaded_instances": [],
                "capabilities": {"vision": false, "trained_for_tool_use": false, "reasoning": {"allowed_options": ["off", "on"]}},
            },
            {"type": "embedding", "key": "maker/embedder", "loaded_instances": []},
        ]});
        let listed = read(&answer).expect("a list");
        let loaded = ModelFacts {
            display_name: Some("Loaded".to_owned()),
            context_window: Some(8_192),
            input_media: Some(vec!["image/*".to_owned()]),
            tools: Some(true),
            reasoning_efforts: Some(vec![Low, High]),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("maker/loaded"), Some(&loaded));
        assert_eq!(listed.get("maker/loaded:2"), Some(&loaded));
        let idle = ModelFacts { input_media: Some(vec![]), ..ModelFacts::default() };
        assert_eq!(listed.get("maker/idle"), Some(&idle));
        assert_eq!(listed.get("maker/embedder"), None);
    }

    #[test]
    fn an_older_version_says_the_window_of_what_is_loaded() {
        let answer = json!({"object": "list", "data": [
            {"id": "a", "type": "llm", "state": "loaded", "max_context_length": 32_768, "loaded_context_length": 4_096, "capabilities": ["tool_use"]},
            {"id": "b", "type": "vlm", "state": "not-loaded", "max_context_length": 32_768, "loaded_context_length": 4_096},
            {"id": "c", "type": "embeddings", "state": "loaded"},
        ]});
        let listed = read_older(&answer).expect("a list");
        let a = ModelFacts {
            context_window: Some(4_096),
            input_media: Some(vec![]),
            tools: Some(true),
            ..ModelFacts::default()
        };
        let b = ModelFacts { input_media: Some(vec!["image/*".to_owned()]), ..ModelFacts::default() };
        assert_eq!((listed.get("a"), listed.get("b")), (Some(&a), Some(&b)));
        assert_eq!(listed.get("c"), None);
    }
}
