//! JSON values with the way to them. Nothing is built of a value before it is read.

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

use super::{FlawKind, Reading};
use crate::provider::http::lenient::{self, Piece};

/// A value.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Node<'a> {
    raw: &'a RawValue,
    at: String,
}

/// An object.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Object<'a> {
    members: BTreeMap<String, &'a RawValue>,
    raw: &'a RawValue,
    at: String,
}

impl<'a> Node<'a> {
    /// The whole value.
    pub(super) fn root(raw: &'a RawValue) -> Self {
        Self {
            raw,
            at: String::new(),
        }
    }

    /// The way to it.
    pub(in crate::provider) fn at(&self) -> &str {
        &self.at
    }

    /// Whether it is an array.
    pub(in crate::provider) fn is_array(&self) -> bool {
        self.raw.get().starts_with('[')
    }

    /// Whether it is a string.
    pub(in crate::provider) fn is_text(&self) -> bool {
        self.raw.get().starts_with('"')
    }

    /// It as it is written, halves of characters replaced.
    pub(in crate::provider) fn json(&self) -> String {
        lenient::sound(self.raw.get()).into_owned()
    }

    /// It as it is written.
    pub(in crate::provider) fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// It as a value.
    pub(in crate::provider) fn value(&self) -> Value {
        lenient::value(self.raw.get()).unwrap_or_default()
    }

    /// Its elements. Anything else is noted.
    pub(in crate::provider) fn elements(&self, reading: &mut Reading<'_>) -> Vec<Self> {
        let Ok(elements) = serde_json::from_str::<Vec<&'a RawValue>>(self.raw.get()) else {
            reading.note(self.at.clone(), FlawKind::Malformed, "must be an array");
            return Vec::new();
        };
        let element = |(index, raw)| Self {
            raw,
            at: format!("{}[{index}]", self.at),
        };
        elements.into_iter().enumerate().map(element).collect()
    }

    /// Its members. Anything else is noted.
    pub(in crate::provider) fn object(&self, reading: &mut Reading<'_>) -> Option<Object<'a>> {
        let Ok(members) = serde_json::from_str(self.raw.get()) else {
            reading.note(self.at.clone(), FlawKind::Malformed, "must be an object");
            return None;
        };
        Some(Object {
            members,
            raw: self.raw,
            at: self.at.clone(),
        })
    }

    /// Its members, or those of all its elements.
    pub(in crate::provider) fn objects(&self, reading: &mut Reading<'_>) -> Vec<Object<'a>> {
        let elements = self.elements(reading);
        elements
            .iter()
            .filter_map(|element| element.object(reading))
            .collect()
    }

    /// Its text. Anything else is noted.
    pub(in crate::provider) fn text(&self, reading: &mut Reading<'_>) -> String {
        if self.is_text() {
            return Piece::of(self.raw).whole().text;
        }
        reading.note(self.at.clone(), FlawKind::Malformed, "must be a string");
        String::new()
    }
}

impl<'a> Object<'a> {
    /// The way to it.
    pub(in crate::provider) fn at(&self) -> &str {
        &self.at
    }

    /// The way to a member.
    pub(in crate::provider) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    /// It as it is written.
    pub(in crate::provider) fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// It as it is written, halves of characters replaced.
    pub(in crate::provider) fn json(&self) -> String {
        lenient::sound(self.raw.get()).into_owned()
    }

    /// The names of its members that are not null.
    pub(in crate::provider) fn names(&self) -> impl Iterator<Item = &str> {
        let members = self.members.iter();
        members
            .filter(|(_, raw)| raw.get() != "null")
            .map(|(name, _)| name.as_str())
    }

    /// A member that is not null.
    pub(in crate::provider) fn get(&self, name: &str) -> Option<Node<'a>> {
        let raw = self.members.get(name).filter(|raw| raw.get() != "null")?;
        Some(Node {
            raw,
            at: self.path(name),
        })
    }

    /// A member that is a string; empty if it is not there.
    pub(in crate::provider) fn word(&self, name: &str, reading: &mut Reading<'_>) -> String {
        self.get(name)
            .map(|node| node.text(reading))
            .unwrap_or_default()
    }

    /// A member that must be there, as a string.
    pub(in crate::provider) fn required(&self, name: &str, reading: &mut Reading<'_>) -> String {
        let Some(node) = self.get(name) else {
            reading.note(self.path(name), FlawKind::Missing, "must be set");
            return String::new();
        };
        let text = node.text(reading);
        if text.is_empty() && node.is_text() {
            reading.note(self.path(name), FlawKind::Missing, "must be set");
        }
        text
    }

    /// Whether a member is true.
    pub(in crate::provider) fn is_true(&self, name: &str) -> bool {
        self.members
            .get(name)
            .is_some_and(|raw| raw.get() == "true")
    }
}
