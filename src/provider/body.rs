//! Builds the JSON body of a request, field by field.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// A JSON object under construction. Setting a field again replaces it.
#[derive(Debug, Default)]
pub(in crate::provider) struct Body(BTreeMap<String, Box<RawValue>>);

impl Body {
    pub(in crate::provider) fn set(&mut self, key: &str, value: impl Serialize) {
        // Serializing our own types to JSON cannot fail.
        let raw = to_raw_value(&value).expect("plain data is JSON");
        self.0.insert(key.to_owned(), raw);
    }

    /// Sets a field if there is a value.
    pub(in crate::provider) fn set_some(&mut self, key: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Merges the options that the host gave for this kind of provider. They override the fields
    /// set so far, except the fields in `ours`: overriding those would send a conversation that
    /// differs from the stored one.
    pub(in crate::provider) fn merge(&mut self, kind: &str, options: Option<&str>, ours: &[&str]) {
        for (key, value) in options_of(kind, options) {
            if !ours.contains(&key.as_str()) {
                self.set(&key, value);
            }
        }
    }

    pub(in crate::provider) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as a JSON value for use within other JSON.
    pub(in crate::provider) fn raw(&self) -> Box<RawValue> {
        to_raw_value(&self.0).expect("JSON with text for keys")
    }

    /// The object as the bytes of a request body.
    pub(in crate::provider) fn bytes(&self) -> Vec<u8> {
        let fields = self.0.iter();
        // Each field adds quotes, a colon and a comma; the object adds two braces.
        let size = 2 + fields
            .map(|(key, value)| key.len() + value.get().len() + 4)
            .sum::<usize>();
        let mut bytes = Vec::with_capacity(size);
        serde_json::to_writer(&mut bytes, &self.0).expect("JSON with text for keys");
        bytes
    }
}

/// The options that the host gave for this kind of provider. Empty if there are none.
pub(in crate::provider) fn options_of<'a>(
    kind: &str,
    options: Option<&'a str>,
) -> BTreeMap<String, &'a RawValue> {
    let kinds =
        options.and_then(|json| serde_json::from_str::<BTreeMap<&str, &RawValue>>(json).ok());
    let own = kinds.and_then(|mut kinds| kinds.remove(kind));
    own.and_then(|own| serde_json::from_str(own.get()).ok())
        .unwrap_or_default()
}
