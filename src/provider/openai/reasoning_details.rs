//! OpenRouter's `reasoning_details`: joined from fragments, stored, and sent back unchanged.

use serde_json::{Map, Value};

use super::wire::DetailFragment;
use crate::provider::http::lenient::{self, Joiner, Piece};

/// The fields that are streamed in fragments.
const PIECEWISE: [&str; 3] = ["text", "summary", "data"];

/// The reasoning details of one response while they are streaming.
#[derive(Debug, Default)]
pub(super) struct Details {
    blocks: Vec<Map<String, Value>>,
    /// A joiner for each of the [`PIECEWISE`] fields of the last block.
    joiners: [Joiner; PIECEWISE.len()],
}

impl Details {
    /// Adds fragments.
    pub(super) fn add(&mut self, fragments: Vec<DetailFragment>) {
        let read = |fragment: DetailFragment| {
            let members = fragment.into_iter().map(|(key, raw)| {
                let at = PIECEWISE.iter().position(|known| *known == key);
                let value = match at.filter(|_| raw.get().starts_with('"')) {
                    Some(at) => Value::String(self.joiners[at].join(&Piece::of(&raw)).text),
                    None => lenient::value(raw.get()).unwrap_or_default(),
                };
                (key, value)
            });
            members.collect()
        };
        let fragments = fragments.into_iter().map(read).collect();
        add(&mut self.blocks, fragments);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the complete blocks.
    pub(super) fn close(mut self) -> Vec<Map<String, Value>> {
        for (key, joiner) in PIECEWISE.into_iter().zip(&mut self.joiners) {
            let rest = joiner.rest();
            if let Some(Value::String(text)) = self.blocks.last_mut().and_then(|block| block.get_mut(key)) {
                text.push_str(&rest.text);
            }
        }
        self.blocks
    }
}

/// Adds fragments, and joins those that belong to one block.
pub(super) fn add(details: &mut Vec<Map<String, Value>>, fragments: Vec<Map<String, Value>>) {
    for fragment in fragments {
        match details.last_mut().filter(|last| continues(last, &fragment)) {
            Some(last) => join(last, fragment),
            None => details.push(fragment),
        }
    }
}

/// The visible text of fragments, for a service that does not send it in another field.
pub(super) fn text(fragments: &[DetailFragment]) -> Option<Piece> {
    let shown = |fragment: &DetailFragment| {
        let raw = ["text", "summary"].iter().find_map(|key| fragment.get(*key));
        raw.filter(|raw| raw.get().starts_with('"')).map(|raw| Piece::of(raw))
    };
    let mut text = Piece::default();
    let pieces = fragments.iter().filter_map(shown);
    pieces.for_each(|piece| text.extend(&piece));
    (!text.is_empty()).then_some(text)
}

/// Whether a fragment continues a block: it has the same type and index, and no different id.
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

    fn check(fragments: &str, expected: Value) {
        let mut details = Details::default();
        for fragment in serde_json::from_str::<Vec<DetailFragment>>(fragments).expect("objects") {
            details.add(vec![fragment]);
        }
        assert_eq!(json!(details.close()), expected);
    }

    #[test]
    fn reasoning_detail_fragments_are_joined_per_block() {
        check(
            r#"[
                {"type": "reasoning.text", "index": 0, "format": "f", "text": "The user"},
                {"type": "reasoning.text", "index": 0, "format": "f", "text": " wants"},
                {"type": "reasoning.text", "index": 0, "format": "f", "signature": "s", "text": null},
                {"type": "reasoning.text", "index": 1, "text": "Second."},
                {"type": "reasoning.encrypted", "index": 1, "id": "a", "data": "x"},
                {"type": "reasoning.encrypted", "index": 1, "id": "b", "data": "y"}
            ]"#,
            json!([
                {"type": "reasoning.text", "index": 0, "format": "f", "text": "The user wants", "signature": "s"},
                {"type": "reasoning.text", "index": 1, "text": "Second."},
                {"type": "reasoning.encrypted", "index": 1, "id": "a", "data": "x"},
                {"type": "reasoning.encrypted", "index": 1, "id": "b", "data": "y"},
            ]),
        );
    }

    #[test]
    fn reasoning_details_without_an_index_are_never_joined() {
        let blocks = json!([{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}]);
        check(&blocks.to_string(), blocks);
    }

    #[test]
    fn a_surrogate_pair_split_between_fragments_is_joined() {
        check(
            r#"[
                {"type": "reasoning.text", "index": 0, "text": "a\ud83d"},
                {"type": "reasoning.text", "index": 0, "text": "\ude00b\udc00"},
                {"type": "reasoning.text", "index": 1, "text": "c\ud83d", "note": "\ud83d"}
            ]"#,
            json!([
                {"type": "reasoning.text", "index": 0, "text": "a😀b\u{fffd}"},
                {"type": "reasoning.text", "index": 1, "text": "c\u{fffd}", "note": "\u{fffd}"},
            ]),
        );
    }
}
