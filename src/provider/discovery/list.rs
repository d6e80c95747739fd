//! What a service's list says of its models, and how the values in it are read: whatever is not as
//! documented is taken as not said.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{model::generation::ReasoningEffort, provider::http::lenient};

/// Most models of a list. The longest known has fewer than 1,000.
pub(super) const MAX_MODELS: usize = 5_000;

/// Bytes of a name.
const MAX_NAME_BYTES: usize = 256;

/// Types of models that answer with no text, where a list has types.
const NO_TEXT: &[&str] = &[
    "audio",
    "embedding",
    "embeddings",
    "image",
    "moderation",
    "rerank",
    "transcribe",
    "video",
];

/// What a list says of one model. Absent: it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedModel {
    /// Name for people.
    pub display_name: Option<String>,
    /// The whole window that can be used now, in tokens.
    pub context_window: Option<u32>,
    /// Most tokens of one answer.
    pub max_output: Option<u32>,
    /// MIME types it takes beside text.
    pub input_media: Option<Vec<String>>,
    /// Whether it can call tools.
    pub tools: Option<bool>,
    /// Whether it can make several calls at once.
    pub parallel_tools: Option<bool>,
    /// Whether it can hold to a JSON schema.
    pub json_schema: Option<bool>,
    /// Whether it takes a temperature.
    pub temperature: Option<bool>,
    /// Levels of reasoning that it has.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// How it can be asked to think; empty if it does not.
    pub thinking: Option<Vec<Thinking>>,
}

/// How a model can be asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// With a budget in tokens.
    Budget,
    /// As much as it finds right, by its level of effort.
    Adaptive,
}

/// A list of models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelList {
    /// By name.
    pub models: BTreeMap<String, ListedModel>,
    /// What holds for any other name too: the server has one model, and reads no names.
    pub any: Option<ListedModel>,
}

/// Why an answer is no list of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It has another shape.
    #[error("its list of models cannot be read")]
    Shape,
    /// It is too long.
    #[error("its list has more than {MAX_MODELS} models")]
    TooLong,
}

impl ModelList {
    /// What the list says about the model of that name. A name without a tag means the tag `latest`.
    pub fn get(&self, name: &str) -> Option<&ListedModel> {
        let tagged = || self.models.get(&format!("{name}:latest"));
        self.models.get(name).or_else(tagged).or(self.any.as_ref())
    }

    /// Reads each entry that has a usable name under `key`; `read` returns `None` for what is no
    /// model that answers with text. A list with entries of which none has a name is no list.
    pub(super) fn of(
        entries: &[Value],
        key: &str,
        read: impl Fn(&Value) -> Option<ListedModel>,
    ) -> Result<Self, Unreadable> {
        if entries.len() > MAX_MODELS {
            return Err(Unreadable::TooLong);
        }
        let named: Vec<(&str, &Value)> = entries
            .iter()
            .filter_map(|entry| Some((text(&entry[key])?, entry)))
            .collect();
        if named.is_empty() && !entries.is_empty() {
            return Err(Unreadable::Shape);
        }
        let models = named
            .into_iter()
            .filter_map(|(name, entry)| Some((name.to_owned(), read(entry)?)));
        Ok(Self {
            models: models.collect(),
            any: None,
        })
    }

    /// Adds the models of another page.
    pub(super) fn extend(&mut self, page: Self) -> Result<(), Unreadable> {
        self.models.extend(page.models);
        match self.models.len() {
            0..=MAX_MODELS => Ok(()),
            _ => Err(Unreadable::TooLong),
        }
    }
}

/// The entries of a list: the member of that name, or the whole answer.
pub(super) fn entries<'a>(answer: &'a Value, key: &str) -> Result<&'a [Value], Unreadable> {
    let list = answer.as_array().or_else(|| answer[key].as_array());
    list.map(Vec::as_slice).ok_or(Unreadable::Shape)
}

/// Text that can be stored and shown in one line.
pub(super) fn text(value: &Value) -> Option<&str> {
    let usable = |text: &&str| {
        !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
    };
    value.as_str().filter(usable)
}

/// A number of tokens. Zero, and what no window can have, is not said.
pub(super) fn tokens(value: &Value) -> Option<u32> {
    lenient::amount(value)
        .and_then(|tokens| u32::try_from(tokens).ok())
        .filter(|tokens| (1..=i32::MAX.unsigned_abs()).contains(tokens))
}

/// The first of these that is a number of tokens.
pub(super) fn first_tokens(entry: &Value, keys: &[&str]) -> Option<u32> {
    keys.iter().find_map(|key| tokens(&entry[*key]))
}

/// Whether a list of words has one; `None` where there is no list.
pub(super) fn has(list: &Value, word: &str) -> Option<bool> {
    list.as_array()
        .map(|list| list.iter().any(|it| it.as_str() == Some(word)))
}

/// `*/*` of the media that a model takes beside text, from what says so; `None` where nothing does.
pub(super) fn media(takes: &[(Option<bool>, &str)]) -> Option<Vec<String>> {
    let said = takes.iter().any(|(takes, _)| takes.is_some());
    let types = takes
        .iter()
        .filter(|(takes, _)| *takes == Some(true))
        .map(|(_, media)| (*media).to_owned());
    said.then(|| types.collect())
}

/// The levels among these words; words that are none are left out. `None` where there is no level.
pub(super) fn efforts<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<ReasoningEffort>> {
    let level = |word: &str| serde_json::from_value(Value::from(word)).ok();
    let mut levels: Vec<ReasoningEffort> = words.filter_map(level).collect();
    levels.sort();
    levels.dedup();
    (!levels.is_empty()).then_some(levels)
}

/// The words of a list.
pub(super) fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether an entry says of itself that it answers with something else than text.
pub(super) fn answers_without_text(entry: &Value) -> bool {
    entry["type"]
        .as_str()
        .is_some_and(|kind| NO_TEXT.contains(&kind.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_of_tokens_is_positive_and_fits() {
        let table = [
            (json!(8192), Some(8192)),
            (json!("8192"), Some(8192)),
            (json!(8192.0), Some(8192)),
            (json!(0), None),
            (json!(-1), None),
            (json!(4_294_967_296_u64), None),
            (json!("many"), None),
            (json!(null), None),
            (json!([8192]), None),
        ];
        for (value, expected) in table {
            assert_eq!(tokens(&value), expected, "{value}");
        }
    }

    #[test]
    fn an_answer_that_is_no_list_or_a_list_without_end_is_refused() {
        let read = |answer: &Value| {
            entries(answer, "data")
                .and_then(|entries| ModelList::of(entries, "id", |_| Some(ListedModel::default())))
        };
        for shape in [
            json!({}),
            json!("models"),
            json!({"error": "Unexpected endpoint or method."}),
            json!({"data": "m"}),
            json!({"data": [1, {"name": "m"}, {"id": 3}, {"id": ""}, {"id": "a\u{0}b"}]}),
        ] {
            assert_eq!(read(&shape), Err(Unreadable::Shape), "{shape}");
        }
        let many: Vec<Value> = (0..=MAX_MODELS)
            .map(|at| json!({"id": format!("m{at}")}))
            .collect();
        assert_eq!(read(&json!({"data": many})), Err(Unreadable::TooLong));
        let some = read(&json!({"data": [{"id": "m"}, 7, {"id": "x".repeat(300)}]}));
        assert_eq!(
            some.map(|list| list.models.into_keys().collect::<Vec<_>>()),
            Ok(vec!["m".to_owned()])
        );
        assert_eq!(read(&json!([])), Ok(ModelList::default()));
    }

    #[test]
    fn a_name_without_a_tag_means_the_latest() {
        let window = |tokens| ListedModel {
            context_window: Some(tokens),
            ..ListedModel::default()
        };
        let models = [("a:latest", 1), ("b", 2), ("b:latest", 3)];
        let mut list = ModelList {
            models: models
                .map(|(name, tokens)| (name.to_owned(), window(tokens)))
                .into(),
            any: None,
        };
        let found =
            |list: &ModelList, name: &str| list.get(name).and_then(|model| model.context_window);
        assert_eq!(
            ["a", "b", "c"].map(|name| found(&list, name)),
            [Some(1), Some(2), None]
        );
        list.any = Some(window(4));
        assert_eq!(found(&list, "c"), Some(4));
    }
}
