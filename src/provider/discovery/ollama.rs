//! Reads the models of Ollama: `GET models` lists the names, `GET /api/ps` the context windows of
//! loaded models, and `POST /api/show` returns the capabilities of one model. `/api/show` also
//! returns the context window that the model was trained with, which is not the one that it is
//! loaded with.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Unreadable};

/// Reads the names.
pub(super) fn read(models: &Value) -> Result<ModelList, Unreadable> {
    let nothing = |_: &Value| Some(ModelFacts::default());
    ModelList::of(list::entries(models, "data")?, "id", nothing)
}

/// Adds the context windows of loaded models.
pub(super) fn add_loaded(listed: &mut ModelList, loaded: &Value) -> Result<(), Unreadable> {
    let window = |entry: &Value| {
        Some(ModelFacts { context_window: list::tokens(&entry["context_length"]), ..ModelFacts::default() })
    };
    let loaded = ModelList::of(list::entries(loaded, "models")?, "name", window)?;
    for (name, loaded) in loaded.models {
        listed.models.entry(name).or_default().context_window = loaded.context_window;
    }
    Ok(())
}

/// Adds the capabilities of a model. Returns `None` if it does not chat.
pub(super) fn with_abilities(model: ModelFacts, shown: &Value) -> Option<ModelFacts> {
    let can = |what| list::has(&shown["capabilities"], what);
    if can("completion") == Some(false) {
        return None;
    }
    Some(ModelFacts {
        input_media: list::media(&[(can("vision"), "image/*")]),
        // Ollama rejects tools for a model that does not support them.
        tools: can("tools"),
        ..model
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_window_is_the_one_that_a_model_is_loaded_with() {
        let models = json!({"object": "list", "data": [{"id": "llama:latest", "object": "model"}, {"id": "idle:8b"}]});
        let mut listed = read(&models).expect("a list");
        let loaded = json!({"models": [{"name": "llama:latest", "model": "llama:latest", "context_length": 4_096}]});
        add_loaded(&mut listed, &loaded).expect("what is loaded");
        let window = |name: &str| listed.get(name).and_then(|it| it.context_window);
        assert_eq!(["llama:latest", "llama", "idle:8b"].map(window), [Some(4_096), Some(4_096), None]);
        assert!(add_loaded(&mut listed.clone(), &json!({})).is_err());
    }

    #[test]
    fn abilities_are_read_and_a_model_that_does_not_chat_is_left_out() {
        let shown = |capabilities: Value| json!({"model_info": {"llama.context_length": 131_072}, "capabilities": capabilities});
        let loaded = ModelFacts { context_window: Some(4_096), ..ModelFacts::default() };
        let seer = ModelFacts { input_media: Some(vec!["image/*".to_owned()]), tools: Some(false), ..loaded.clone() };
        let table = [
            (json!(["completion", "vision"]), Some(seer)),
            (json!(["embedding"]), None),
            (json!(null), Some(loaded.clone())),
        ];
        for (capabilities, expected) in table {
            let read = with_abilities(loaded.clone(), &shown(capabilities.clone()));
            assert_eq!(read, expected, "{capabilities}");
        }
    }
}
