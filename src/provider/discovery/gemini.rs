//! Reads Gemini's own model list: `GET v1beta/models`, in pages.

use serde_json::Value;

use super::list::{self, ModelFacts, ModelList, Page, Thinking, Unreadable};

/// Prefix of resource names.
const PREFIX: &str = "models/";

/// Reads a page. Also returns the token of the next page, if there is one.
pub(super) fn read(answer: &Value) -> Result<Page, Unreadable> {
    let listed = ModelList::of(list::entries(answer, "models")?, "name", model)?;
    let next = list::text(&answer["nextPageToken"]).map(str::to_owned);
    Ok((listed.without_prefix(PREFIX), next))
}

fn model(entry: &Value) -> Option<ModelFacts> {
    if list::has(&entry["supportedGenerationMethods"], "generateContent") == Some(false) {
        return None;
    }
    let thinking = match entry["thinking"].as_bool() {
        Some(true) => Some(vec![Thinking::Budget]),
        Some(false) => Some(Vec::new()),
        None => None,
    };
    Some(ModelFacts {
        display_name: list::text(&entry["displayName"]).map(str::to_owned),
        context_window: list::tokens(&entry["inputTokenLimit"]),
        max_output: list::tokens(&entry["outputTokenLimit"]),
        // Only models that accept a temperature list its maximum.
        temperature: entry["maxTemperature"].is_number().then_some(true),
        thinking,
        ..ModelFacts::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_models_that_generate_content_and_the_token_of_the_next() {
        let answer = json!({"models": [
            {
                "name": "models/gemini-2.5-flash",
                "displayName": "Gemini 2.5 Flash",
                "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "temperature": 1,
                "maxTemperature": 2,
                "thinking": true,
            },
            {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
        ], "nextPageToken": "abc"});
        let (listed, next) = read(&answer).expect("a list");
        assert_eq!(next.as_deref(), Some("abc"));
        let flash = ModelFacts {
            display_name: Some("Gemini 2.5 Flash".to_owned()),
            context_window: Some(1_048_576),
            max_output: Some(65_536),
            temperature: Some(true),
            thinking: Some(vec![Thinking::Budget]),
            ..ModelFacts::default()
        };
        assert_eq!(listed.models.into_iter().collect::<Vec<_>>(), [("gemini-2.5-flash".to_owned(), flash)]);
        let last = read(&json!({"models": []})).expect("an empty page");
        assert_eq!(last, (ModelList::default(), None));
    }
}
