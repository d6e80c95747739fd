//! Reads the model list of services with the Chat Completions protocol: `GET models`. OpenAI,
//! DeepSeek and others list only names; Groq, Together, Fireworks, Moonshot and vLLM also list
//! context windows, each in a different field.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Unreadable};

/// Fields for the context window: of vLLM; of Groq; of Together, Fireworks and Moonshot. Fields for
/// the window that a model was trained with are not included.
const WINDOWS: &[&str] = &["max_model_len", "context_window", "context_length"];

/// Fields for the limit on a response.
const OUTPUTS: &[&str] = &["max_completion_tokens", "max_output_tokens"];

/// Substrings of the names of models that do not chat, for lists without other information.
const NO_CHAT: &[&str] = &[
    "babbage",
    "dall-e",
    "davinci",
    "embed",
    "gpt-image",
    "image-generation",
    "imagen",
    "moderation",
    "realtime",
    "rerank",
    "sora",
    "transcribe",
    "tts",
    "veo-",
    "whisper",
];

/// Reads the list.
pub(super) fn read(answer: &Value) -> Result<ModelList, Unreadable> {
    let entries = list::entries(answer, "data")?;
    let mut listed = ModelList::of(entries, "id", model)?;
    inherit(entries, &mut listed);
    // Google's list has resource names.
    Ok(listed.without_prefix("models/"))
}

fn model(entry: &Value) -> Option<ModelFacts> {
    let name = entry["id"].as_str()?.to_ascii_lowercase();
    let unusable = list::answers_without_text(entry)
        || entry["active"] == false
        || entry["supports_chat"] == false
        || NO_CHAT.iter().any(|word| name.contains(word));
    if unusable {
        return None;
    }
    let pictures = entry["supports_image_input"].as_bool().or_else(|| entry["supports_image_in"].as_bool());
    Some(ModelFacts {
        display_name: list::text(&entry["display_name"]).map(str::to_owned),
        context_window: window(entry),
        max_output: list::first_tokens(entry, OUTPUTS),
        input_media: list::media(&[(pictures, "image/*")]),
        tools: entry["supports_tools"].as_bool(),
        ..ModelFacts::default()
    })
}

/// The context window, from any of the known fields.
pub(super) fn window(entry: &Value) -> Option<u32> {
    let of_slot = || list::tokens(&entry["meta"]["n_ctx"]);
    list::first_tokens(entry, WINDOWS).or_else(of_slot)
}

/// Gives a vLLM adapter the context window of its base model.
fn inherit(entries: &[Value], listed: &mut ModelList) {
    for entry in entries {
        let (Some(name), Some(parent)) = (entry["id"].as_str(), entry["parent"].as_str()) else {
            continue;
        };
        let parent = listed.models.get(parent);
        let window = parent.and_then(|parent| parent.context_window);
        if let Some(model) = listed.models.get_mut(name) {
            model.context_window = model.context_window.or(window);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_window_is_read_from_the_field_of_each_service() {
        let table = [
            (
                "openai: names only",
                json!({"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "system"}]}),
                None,
                None,
            ),
            (
                "groq",
                json!({"data": [{"id": "m", "active": true, "context_window": 131072, "max_completion_tokens": 65536}]}),
                Some(131_072),
                Some(65_536),
            ),
            (
                "together: no object around the list",
                json!([{"id": "m", "type": "chat", "display_name": "M", "context_length": 32768}]),
                Some(32_768),
                None,
            ),
            (
                "vllm",
                json!({"data": [{"id": "m", "root": "/models/m", "parent": null, "max_model_len": 16384}]}),
                Some(16_384),
                None,
            ),
            (
                "llama.cpp: what a slot has, not what the model was trained with",
                json!({"data": [{"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 131072}}]}),
                Some(4_096),
                None,
            ),
            ("an older llama.cpp", json!({"data": [{"id": "m", "meta": {"n_ctx_train": 131072}}]}), None, None),
        ];
        for (case, answer, window, output) in table {
            let listed = read(&answer).expect(case);
            let model = listed.get("m").expect(case);
            assert_eq!((model.context_window, model.max_output), (window, output), "{case}");
        }
    }

    #[test]
    fn models_that_do_not_chat_are_not_listed() {
        let answer = json!({"data": [
            {"id": "gpt-5"},
            {"id": "text-embedding-3-large"},
            {"id": "whisper-large-v3", "context_window": 448},
            {"id": "gpt-4o-mini-tts"},
            {"id": "old", "active": false},
            {"id": "pictures", "type": "image"},
            {"id": "models/gemini-2.5-flash"},
        ]});
        let names: Vec<String> = read(&answer).expect("a list").models.into_keys().collect();
        assert_eq!(names, ["gemini-2.5-flash", "gpt-5"]);
    }

    #[test]
    fn an_adapter_has_the_window_of_its_parent() {
        let answer = json!({"data": [
            {"id": "adapter", "parent": "base", "max_model_len": null},
            {"id": "base", "parent": null, "max_model_len": 8192},
        ]});
        let listed = read(&answer).expect("a list");
        let window = listed.get("adapter").and_then(|model| model.context_window);
        assert_eq!(window, Some(8_192));
    }

    #[test]
    fn media_and_tools_are_read_where_a_list_has_them() {
        let answer = json!({"data": [
            {"id": "fireworks", "supports_chat": true, "supports_image_input": true, "supports_tools": true, "context_length": 1},
            {"id": "moonshot", "supports_image_in": false, "context_length": 1},
            {"id": "silent"},
        ]});
        let listed = read(&answer).expect("a list");
        let said = |name: &str| {
            let model = listed.get(name).expect(name);
            (model.input_media.clone(), model.tools)
        };
        assert_eq!(said("fireworks"), (Some(vec!["image/*".to_owned()]), Some(true)));
        assert_eq!(said("moonshot"), (Some(vec![]), None));
        assert_eq!(said("silent"), (None, None));
    }
}
