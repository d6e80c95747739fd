//! Reads Anthropic's model list: `GET models`, in pages. Other servers with this protocol report
//! context windows in different fields.

use serde_json::Value;

use super::{
    compatible,
    list::{self, ModelFacts, ModelList, Page, Thinking, Unreadable},
};

/// Levels of effort, by their names in the list.
const LEVELS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// Reads a page. Also returns the id after which the next page starts, if there is one.
pub(super) fn read(answer: &Value) -> Result<Page, Unreadable> {
    let listed = ModelList::of(list::entries(answer, "data")?, "id", model)?;
    let last = list::text(&answer["last_id"]).map(str::to_owned);
    let next = last.filter(|_| answer["has_more"] == true);
    Ok((listed, next))
}

fn model(entry: &Value) -> Option<ModelFacts> {
    let capabilities = &entry["capabilities"];
    let can = |what: &str| capabilities[what]["supported"].as_bool();
    let effort = &capabilities["effort"];
    let levels = LEVELS.iter().copied();
    let levels = levels.filter(|level| effort[*level]["supported"] == true);
    Some(ModelFacts {
        display_name: list::text(&entry["display_name"]).map(str::to_owned),
        context_window: list::tokens(&entry["max_input_tokens"]).or_else(|| compatible::window(entry)),
        max_output: list::tokens(&entry["max_tokens"]),
        input_media: list::media(&[(can("image_input"), "image/*"), (can("pdf_input"), "application/pdf")]),
        json_schema: can("structured_outputs"),
        // A model without listed levels may still support a budget: the list does not state that it
        // has no levels.
        reasoning_efforts: list::efforts(levels),
        thinking: thinking(&capabilities["thinking"]),
        ..ModelFacts::default()
    })
}

fn thinking(said: &Value) -> Option<Vec<Thinking>> {
    if !said["supported"].as_bool()? {
        return Some(Vec::new());
    }
    let kinds = [("enabled", Thinking::Budget), ("adaptive", Thinking::Adaptive)];
    let has = |kind: &str| said["types"][kind]["supported"] == true;
    let kinds = kinds.into_iter().filter(|(kind, _)| has(kind));
    let kinds: Vec<Thinking> = kinds.map(|(_, kind)| kind).collect();
    (!kinds.is_empty()).then_some(kinds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::generation::ReasoningEffort::{High, Low, Max};

    #[test]
    fn a_page_has_limits_and_capabilities_and_where_the_next_begins() {
        let yes = json!({"supported": true});
        let no = json!({"supported": false});
        let answer = json!({"data": [
            {
                "type": "model",
                "id": "claude-new",
                "display_name": "Claude New",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
                "capabilities": {
                    "image_input": yes, "pdf_input": yes, "structured_outputs": yes,
                    "effort": {"supported": true, "low": yes, "medium": no, "high": yes, "max": yes},
                    "thinking": {"supported": true, "types": {"adaptive": yes, "enabled": no}},
                },
            },
            {
                "type": "model",
                "id": "claude-old",
                "display_name": "Claude Old",
                "max_input_tokens": 200_000,
                "max_tokens": 8_192,
                "capabilities": {"image_input": no, "effort": {"supported": false}, "thinking": {"supported": false}},
            },
            {"type": "model", "id": "claude-bare", "display_name": "Claude Bare"},
        ], "has_more": true, "first_id": "claude-new", "last_id": "claude-bare"});
        let (listed, next) = read(&answer).expect("a list");
        assert_eq!(next.as_deref(), Some("claude-bare"));
        let new = ModelFacts {
            display_name: Some("Claude New".to_owned()),
            context_window: Some(1_000_000),
            max_output: Some(128_000),
            input_media: Some(vec!["image/*".to_owned(), "application/pdf".to_owned()]),
            json_schema: Some(true),
            reasoning_efforts: Some(vec![Low, High, Max]),
            thinking: Some(vec![Thinking::Adaptive]),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("claude-new"), Some(&new));
        let old = ModelFacts {
            display_name: Some("Claude Old".to_owned()),
            context_window: Some(200_000),
            max_output: Some(8_192),
            input_media: Some(vec![]),
            thinking: Some(vec![]),
            ..ModelFacts::default()
        };
        assert_eq!(listed.get("claude-old"), Some(&old));
        let server = json!({"data": [{"id": "m", "meta": {"n_ctx": 4_096}}]});
        let server = read(&server).expect("a list of llama.cpp").0;
        assert_eq!(server.get("m").and_then(|it| it.context_window), Some(4_096));
        let last = json!({"data": [{"id": "m"}], "has_more": false, "last_id": "m"});
        assert_eq!(read(&last).expect("a list").1, None);
    }
}
