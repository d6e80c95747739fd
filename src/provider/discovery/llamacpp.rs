//! Reads the models of llama.cpp: `GET /props` and `GET models`. The usable context window is that
//! of one slot, never the one that the model was trained with.

use serde_json::Value;

use super::{
    compatible,
    list::{self, ModelFacts, ModelList, Unreadable},
};

/// Merges the server's properties with its model list. A server with a single model responds to
/// every name.
pub(super) fn read(props: Option<&Value>, models: Option<&Value>) -> Result<ModelList, Unreadable> {
    let slot = props.and_then(slot);
    let listed = models.map(compatible::read);
    let mut listed = match (&slot, listed) {
        (_, Some(Ok(listed))) => listed,
        (Some(_), Some(Err(_)) | None) => ModelList::default(),
        (None, Some(Err(error))) => return Err(error),
        (None, None) => return Err(Unreadable::Shape),
    };
    // The properties of a router's slots do not apply to each server behind it.
    if listed.models.len() <= 1
        && let Some(slot) = slot
    {
        for model in listed.models.values_mut() {
            *model = ModelFacts { display_name: model.display_name.take(), ..slot.clone() };
        }
        listed.any = Some(slot);
    }
    Ok(listed)
}

/// The facts about each slot. Returns `None` if its size is not stated.
fn slot(props: &Value) -> Option<ModelFacts> {
    let window = list::tokens(&props["default_generation_settings"]["n_ctx"])?;
    let takes = |kind: &str| props["modalities"][kind].as_bool();
    // If the chat template has no form for tools, the server writes them into the prompt.
    let template = |what: &str| props["chat_template_caps"][what].as_bool();
    Some(ModelFacts {
        context_window: Some(window),
        input_media: list::media(&[(takes("vision"), "image/*"), (takes("audio"), "audio/*")]),
        tools: template("supports_tools").filter(|known| *known),
        parallel_tools: template("supports_parallel_tool_calls").filter(|known| *known),
        ..ModelFacts::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn props() -> Value {
        json!({
            "default_generation_settings": {"n_ctx": 4_096, "params": {}},
            "total_slots": 4,
            "modalities": {"vision": true, "audio": false},
            "chat_template_caps": {"supports_tools": true, "supports_parallel_tool_calls": false},
        })
    }

    #[test]
    fn the_window_is_that_of_a_slot_under_any_name() {
        let models = json!({"data": [{"id": "file.gguf", "meta": {"n_ctx": 16_384, "n_ctx_train": 131_072}}]});
        let listed = read(Some(&props()), Some(&models)).expect("a list");
        let slot = ModelFacts {
            context_window: Some(4_096),
            input_media: Some(vec!["image/*".to_owned()]),
            tools: Some(true),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("file.gguf"), Some(&slot));
        assert_eq!(listed.get("whatever"), Some(&slot));
        let alone = read(Some(&props()), None).expect("a list");
        assert_eq!(alone.get("whatever"), Some(&slot));
    }

    #[test]
    fn without_the_slots_the_list_is_read_and_without_either_nothing() {
        let models = json!({"data": [{"id": "file.gguf", "meta": {"n_ctx": 2_048}}]});
        for props in [None, Some(json!({"error": "no"}))] {
            let listed = read(props.as_ref(), Some(&models)).expect("a list");
            let window = listed.get("file.gguf").and_then(|it| it.context_window);
            assert_eq!((window, listed.get("whatever")), (Some(2_048), None));
            assert!(read(props.as_ref(), None).is_err());
        }
    }

    #[test]
    fn a_router_says_the_window_of_each_of_its_models() {
        let models = json!({"data": [{"id": "a", "meta": {"n_ctx": 2_048}}, {"id": "b"}]});
        let listed = read(Some(&props()), Some(&models)).expect("a list");
        let window = |name: &str| listed.get(name).and_then(|it| it.context_window);
        assert_eq!(["a", "b", "c"].map(window), [Some(2_048), None, None]);
    }
}
