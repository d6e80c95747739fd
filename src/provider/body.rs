//! Builds the JSON body of a request, field by field.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::model::{
    Generation, Prompt,
    generation::{ToolChoice, UpTo},
};

/// A JSON object under construction. Setting a field again replaces it.
#[derive(Debug, Default)]
pub(super) struct Body(BTreeMap<String, Box<RawValue>>);

impl Body {
    pub(super) fn set(&mut self, key: &str, value: impl Serialize) {
        self.0.insert(key.to_owned(), plain(&value));
    }

    /// Sets a field if there is a value.
    pub(super) fn set_some(&mut self, key: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Sets a field to a list, unless it is empty.
    pub(super) fn set_list(&mut self, key: &str, list: Vec<impl Serialize>) {
        if !list.is_empty() {
            self.set(key, list);
        }
    }

    /// Sets the settings that the service takes as they are, under these names.
    pub(super) fn set_plain(&mut self, generation: &Generation, names: [&str; 5]) {
        for (name, value) in plain_settings(generation, names) {
            self.set(name, value);
        }
    }

    /// Merges the options that the host gave for this kind of provider. They override the fields
    /// set so far, except the fields in `ours`: overriding those would send a conversation that
    /// differs from the stored one.
    pub(super) fn merge(&mut self, kind: &str, options: Option<&str>, ours: &[&str]) {
        for (key, value) in options_of(kind, options) {
            if !ours.contains(&key.as_str()) {
                self.set(&key, value);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as a JSON value for use within other JSON.
    pub(super) fn raw(&self) -> Box<RawValue> {
        plain(&self.0)
    }

    /// The object as the bytes of a request body.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let fields = self.0.iter();
        // Each field adds quotes, a colon and a comma; the object adds two braces.
        let size = 2 + fields.map(|(key, value)| key.len() + value.get().len() + 4).sum::<usize>();
        let mut bytes = Vec::with_capacity(size);
        serde_json::to_writer(&mut bytes, &self.0).expect("JSON with text for keys");
        bytes
    }
}

/// The options that the host gave for this kind of provider. Empty if there are none.
pub(super) fn options_of<'a>(kind: &str, options: Option<&'a str>) -> BTreeMap<String, &'a RawValue> {
    let kinds = options.and_then(|json| serde_json::from_str::<BTreeMap<&str, &RawValue>>(json).ok());
    let own = kinds.and_then(|mut kinds| kinds.remove(kind));
    own.and_then(|own| serde_json::from_str(own.get()).ok()).unwrap_or_default()
}

/// Data as JSON. Serializing our own types cannot fail.
pub(super) fn plain(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("plain data is JSON")
}

/// The tools of a request: those of the host, in encoded form, and server tools as the host wrote
/// them.
pub(super) fn tools(host: impl Iterator<Item = impl Serialize>, prompt: &Prompt) -> Vec<Box<RawValue>> {
    let server = prompt.provider_tools.iter();
    let server = server.filter_map(|json| RawValue::from_string(json.clone()).ok());
    host.map(|tool| plain(&tool)).chain(server).collect()
}

/// JSON that was received from elsewhere and is passed through unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Json<'a>(pub(super) Cow<'a, str>);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The settings that services take as they are, under the service's names for temperature, `top_p`,
/// `top_k`, seed and stop sequences. Each protocol writes the other settings itself.
pub(super) fn plain_settings<'a>(
    generation: &Generation,
    names: [&'a str; 5],
) -> impl Iterator<Item = (&'a str, Value)> {
    let Generation {
        temperature,
        top_p,
        top_k,
        stop_sequences,
        seed,
        reasoning_effort: _,
        reasoning_budget_tokens: _,
        tool_choice: _,
        parallel_tool_calls: _,
        response_format: _,
        provider_options: _,
    } = generation;
    let stops = Some(stop_sequences).filter(|stops| !stops.is_empty());
    let values =
        [json!(temperature.map(UpTo::get)), json!(top_p.map(UpTo::get)), json!(top_k), json!(seed), json!(stops)];
    let fields = names.into_iter().zip(values);
    fields.filter(|(_, value)| !value.is_null())
}

/// A tool choice by the names that most services use. `of_tool` is the form for one tool.
pub(super) fn tool_choice(choice: &ToolChoice, of_tool: impl FnOnce(&str) -> Value) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => of_tool(name),
    }
}
