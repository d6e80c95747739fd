//! The contents of a service's model list, and how its values are read: a value that is not as
//! documented is treated as absent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{model::generation::ReasoningEffort, provider::http::lenient};

/// Limit on the models in a list. The longest known list has fewer than 1,000.
pub(super) const MAX_MODELS: usize = 5_000;

/// Limit on the bytes of a name.
const MAX_NAME_BYTES: usize = 256;

/// Types of models that do not respond with text, for lists that have types.
const NO_TEXT: &[&str] = &["audio", "embedding", "embeddings", "image", "moderation", "rerank", "transcribe", "video"];

/// The facts that a list or the shipped table states about one model. An absent fact is not stated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelFacts {
    /// Human-readable name.
    pub display_name: Option<String>,
    /// The context window that is currently usable, in tokens.
    pub context_window: Option<u32>,
    /// Limit on one response, in tokens.
    pub max_output: Option<u32>,
    /// MIME types that the model accepts in addition to text.
    pub input_media: Option<Vec<String>>,
    pub tools: Option<bool>,
    /// Whether the model can make several tool calls in parallel.
    pub parallel_tools: Option<bool>,
    /// Whether the model can follow a JSON schema.
    pub json_schema: Option<bool>,
    /// Whether the model accepts a temperature.
    pub temperature: Option<bool>,
    /// Levels of reasoning effort that the model supports.
    pub reasoning_efforts: Option<Vec<ReasoningEffort>>,
    /// The ways to request reasoning. Empty if the model does not reason.
    #[serde(skip)]
    pub thinking: Option<Vec<Thinking>>,
    /// Price of a token that is read from the prompt cache, in percent of the price of another.
    pub cache_read: Option<u32>,
    /// Price of a token that is written to the prompt cache, in percent of the price of another.
    pub cache_write: Option<u32>,
}

/// A way to request reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// With a budget in tokens.
    Budget,
    /// The model decides how much to reason, guided by a level of effort.
    Adaptive,
}

/// A model list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelList {
    /// The models by name.
    pub models: BTreeMap<String, ModelFacts>,
    /// The facts that hold for any other name: the server has a single model and ignores names.
    pub any: Option<ModelFacts>,
}

/// A page of a list, and the token of the next page, if there is one.
pub(super) type Page = (ModelList, Option<String>);

/// Why a response is not a valid model list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It has an unexpected structure.
    #[error("its model list cannot be parsed")]
    Shape,
    /// It has too many models.
    #[error("its model list has more than {MAX_MODELS} models")]
    TooLong,
}

impl ModelList {
    /// What the list states about the model with this name. A name without a tag matches the tag
    /// `latest`.
    pub fn get(&self, name: &str) -> Option<&ModelFacts> {
        let tagged = || self.models.get(&format!("{name}:latest"));
        self.models.get(name).or_else(tagged).or(self.any.as_ref())
    }

    /// Reads each entry that has a usable name under `key`. `read` returns `None` for a model that
    /// does not respond with text. A list in which no entry has a name is invalid.
    pub(super) fn of(
        entries: &[Value],
        key: &str,
        read: impl Fn(&Value) -> Option<ModelFacts>,
    ) -> Result<Self, Unreadable> {
        if entries.len() > MAX_MODELS {
            return Err(Unreadable::TooLong);
        }
        let named = entries.iter().filter_map(|it| Some((text(&it[key])?, it)));
        let named: Vec<(&str, &Value)> = named.collect();
        if named.is_empty() && !entries.is_empty() {
            return Err(Unreadable::Shape);
        }
        let named = named.into_iter();
        let models = named.filter_map(|(name, entry)| Some((name.to_owned(), read(entry)?)));
        Ok(Self { models: models.collect(), any: None })
    }

    /// The list with a prefix removed from the names that have it.
    pub(super) fn without_prefix(self, prefix: &str) -> Self {
        let models = self.models.into_iter();
        let plain = |name: String| name.strip_prefix(prefix).map(str::to_owned).unwrap_or(name);
        Self { models: models.map(|(name, model)| (plain(name), model)).collect(), any: self.any }
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

/// The entries of a list: the member with this name, or the whole response.
pub(super) fn entries<'a>(answer: &'a Value, key: &str) -> Result<&'a [Value], Unreadable> {
    let list = answer.as_array().or_else(|| answer[key].as_array());
    list.map(Vec::as_slice).ok_or(Unreadable::Shape)
}

/// A string that can be stored and shown on one line. Returns `None` for other values.
pub(super) fn text(value: &Value) -> Option<&str> {
    let usable = |text: &&str| !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control);
    value.as_str().filter(usable)
}

/// A number of tokens. Returns `None` for zero and for values that no context window can have.
pub(super) fn tokens(value: &Value) -> Option<u32> {
    let tokens = u32::try_from(lenient::amount(value)?).ok();
    tokens.filter(|tokens| (1..=i32::MAX.unsigned_abs()).contains(tokens))
}

/// The first of these members that is a number of tokens.
pub(super) fn first_tokens(entry: &Value, keys: &[&str]) -> Option<u32> {
    keys.iter().find_map(|key| tokens(&entry[*key]))
}

/// Whether a list of strings contains one. Returns `None` if there is no list.
pub(super) fn has(list: &Value, word: &str) -> Option<bool> {
    let list = list.as_array()?;
    Some(list.iter().any(|it| it.as_str() == Some(word)))
}

/// The media types that a model accepts in addition to text, from the members that state it.
/// Returns `None` if none does.
pub(super) fn media(takes: &[(Option<bool>, &str)]) -> Option<Vec<String>> {
    let said = takes.iter().any(|(takes, _)| takes.is_some());
    let types = takes.iter().filter(|(takes, _)| *takes == Some(true));
    said.then(|| types.map(|(_, media)| (*media).to_owned()).collect())
}

/// The known levels of effort among these names. Returns `None` if there are none.
pub(super) fn efforts<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<ReasoningEffort>> {
    let level = |word: &str| serde_json::from_value(Value::from(word)).ok();
    let mut levels: Vec<ReasoningEffort> = words.filter_map(level).collect();
    levels.sort();
    levels.dedup();
    (!levels.is_empty()).then_some(levels)
}

/// The strings in a list.
pub(super) fn words(list: &Value) -> impl Iterator<Item = &str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str)
}

/// Whether the entry states a type of model that does not respond with text.
pub(super) fn answers_without_text(entry: &Value) -> bool {
    let kind = entry["type"].as_str().map(str::to_ascii_lowercase);
    kind.is_some_and(|kind| NO_TEXT.contains(&kind.as_str()))
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
            entries(answer, "data").and_then(|entries| ModelList::of(entries, "id", |_| Some(ModelFacts::default())))
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
        let many: Vec<Value> = (0..=MAX_MODELS).map(|at| json!({"id": format!("m{at}")})).collect();
        assert_eq!(read(&json!({"data": many})), Err(Unreadable::TooLong));
        let some = read(&json!({"data": [{"id": "m"}, 7, {"id": "x".repeat(300)}]}));
        assert_eq!(some.map(|list| list.models.into_keys().collect::<Vec<_>>()), Ok(vec!["m".to_owned()]));
        assert_eq!(read(&json!([])), Ok(ModelList::default()));
    }

    #[test]
    fn a_name_without_a_tag_means_the_latest() {
        let window = |tokens| ModelFacts { context_window: Some(tokens), ..ModelFacts::default() };
        let models = [("a:latest", 1), ("b", 2), ("b:latest", 3)];
        let mut list =
            ModelList { models: models.map(|(name, tokens)| (name.to_owned(), window(tokens))).into(), any: None };
        let found = |list: &ModelList, name: &str| list.get(name).and_then(|model| model.context_window);
        assert_eq!(["a", "b", "c"].map(|name| found(&list, name)), [Some(1), Some(2), None]);
        list.any = Some(window(4));
        assert_eq!(found(&list, "c"), Some(4));
    }
}
