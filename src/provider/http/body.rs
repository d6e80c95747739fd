//! The body of a request, field by field.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// A JSON object. The same fields always make the same bytes.
#[derive(Debug, Default)]
pub struct Body(BTreeMap<String, Box<RawValue>>);

impl Body {
    /// Sets a field.
    pub fn set(&mut self, key: &str, value: impl Serialize) {
        self.0.insert(key.to_owned(), raw(&value));
    }

    /// Sets a field, if there is a value.
    pub fn set_some(&mut self, key: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        raw(&self.0).get().as_bytes().to_vec()
    }
}

/// Our own types have nothing that JSON cannot hold.
fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("plain data is JSON")
}
