//! OpenRouter's `reasoning_details`: joined from their fragments, kept, and handed back unchanged.

use serde_json::{Map, Value};

/// The fields that come piece by piece.
const PIECEWISE: &[&str] = &["text", "summary", "data"];

/// Adds fragments: those of one block become one block.
pub(super) fn add(details: &mut Vec<Map<String, Value>>, fragments: Vec<Map<String, Value>>) {
    for fragment in fragments {
        match details.last_mut().filter(|last| continues(last, &fragment)) {
            Some(last) => join(last, fragment),
            None => details.push(fragment),
        }
    }
}

/// The text that fragments show, for a service that shows it nowhere else.
pub(super) fn text(fragments: &[Map<String, Value>]) -> Option<String> {
    let shown = |fragment: &Map<String, Value>| {
        ["text", "summary"].iter().find_map(|key| fragment.get(*key)?.as_str().map(str::to_owned))
    };
    let text: String = fragments.iter().filter_map(shown).collect();
    (!text.is_empty()).then_some(text)
}

/// Whether a fragment goes on with a block: the same type and number, and no other id.
fn continues(block: &Map<String, Value>, fragment: &Map<String, Value>) -> bool {
    let known = |map: &Map<String, Value>, key: &str| map.get(key).filter(|value| !value.is_null()).cloned();
    let same = |key: &str| known(block, key) == known(fragment, key);
    let no_other = |key: &str| known(fragment, key).is_none_or(|id| known(block, key).is_none_or(|own| own == id));
    let numbered = known(fragment, "index").is_some();
    numbered && same("type") && same("index") && no_other("id")
}

fn join(block: &mut Map<String, Value>, fragment: Map<String, Value>) {
    for (key, value) in fragment {
        match (block.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if PIECEWISE.contains(&key.as_str()) => {
                text.push_str(&more)
            }
            (_, value) => {
                block.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(fragments: Value, expected: Value) {
        let mut details = Vec::new();
        for fragment in serde_json::from_value::<Vec<Map<String, Value>>>(fragments).expect("objects") {
            add(&mut details, vec![fragment]);
        }
        assert_eq!(json!(details), expected);
    }

    #[test]
    fn fragments_of_a_block_become_one_and_blocks_stay_apart() {
        check(
            json!([
                {"type": "reasoning.text", "index": 0, "format": "f", "text": "The user"},
                {"type": "reasoning.text", "index": 0, "format": "f", "text": " wants"},
                {"type": "reasoning.text", "index": 0, "format": "f", "signature": "s", "text": null},
                {"type": "reasoning.text", "index": 1, "text": "Second."},
                {"type": "reasoning.encrypted", "index": 1, "id": "a", "data": "x"},
                {"type": "reasoning.encrypted", "index": 1, "id": "b", "data": "y"},
            ]),
            json!([
                {"type": "reasoning.text", "index": 0, "format": "f", "text": "The user wants", "signature": "s"},
                {"type": "reasoning.text", "index": 1, "text": "Second."},
                {"type": "reasoning.encrypted", "index": 1, "id": "a", "data": "x"},
                {"type": "reasoning.encrypted", "index": 1, "id": "b", "data": "y"},
            ]),
        );
    }

    #[test]
    fn blocks_without_a_number_are_never_joined() {
        let blocks = json!([{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}]);
        check(blocks.clone(), blocks);
    }
}
