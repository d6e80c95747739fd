//! JSON values with their paths. Values are parsed only when they are accessed.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::{FlawKind, Importer};
use crate::{
    model::json::replace_lone_surrogates,
    provider::http::lenient::{self, Piece},
};

/// Limit on the elements of an array. One message of this API may be several items of another API.
const MAX_ELEMENTS: usize = 10_000;

/// Limit on the members of an object that are read. No message has this many.
const MAX_MEMBERS: usize = 256;

/// The elements of an array, up to the limit.
struct Elements<'a>(Vec<&'a RawValue>);

/// The first members of an object, up to the limit.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Elements<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == MAX_ELEMENTS {
                        return Err(A::Error::custom("too many elements"));
                    }
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }
        deserializer.deserialize_seq(Walk)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = BTreeMap::new();
                while members.len() < MAX_MEMBERS {
                    match map.next_entry()? {
                        Some((name, value)) => members.insert(name, value),
                        None => return Ok(Members(members)),
                    };
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Walk)
    }
}

/// A JSON value and its path.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Node<'a> {
    raw: &'a RawValue,
    at: String,
}

/// A JSON object and its path.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Object<'a> {
    members: BTreeMap<String, &'a RawValue>,
    raw: &'a RawValue,
    at: String,
}

impl<'a> Node<'a> {
    /// The root value.
    pub(super) fn root(raw: &'a RawValue) -> Self {
        Self {
            raw,
            at: String::new(),
        }
    }

    /// The path of the value.
    pub(in crate::provider) fn at(&self) -> &str {
        &self.at
    }

    /// Whether the value is an array.
    pub(in crate::provider) fn is_array(&self) -> bool {
        self.raw.get().starts_with('[')
    }

    /// Whether the value is an object.
    pub(in crate::provider) fn is_object(&self) -> bool {
        self.raw.get().starts_with('{')
    }

    /// Whether the value is a string.
    pub(in crate::provider) fn is_text(&self) -> bool {
        self.raw.get().starts_with('"')
    }

    /// The JSON text, with unpaired surrogates replaced.
    pub(in crate::provider) fn json(&self) -> String {
        replace_lone_surrogates(self.raw.get()).into_owned()
    }

    /// The JSON text, unchanged.
    pub(in crate::provider) fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// The parsed value.
    pub(in crate::provider) fn value(&self) -> Value {
        lenient::value(self.raw.get()).unwrap_or_default()
    }

    /// The elements of an array. If the value is not an array or is too long, this is noted and the
    /// result is empty.
    pub(in crate::provider) fn elements(&self, reading: &mut Importer<'_>) -> Vec<Self> {
        if !self.is_array() {
            reading.note(self.at.clone(), FlawKind::Malformed, "must be an array");
            return Vec::new();
        }
        // The input is valid JSON, so the only possible error is the number of elements.
        let Ok(Elements(elements)) = serde_json::from_str(self.raw.get()) else {
            let why = format!("must have at most {MAX_ELEMENTS} elements");
            reading.note(self.at.clone(), FlawKind::TooLarge, why);
            return Vec::new();
        };
        let element = |(index, raw)| Self {
            raw,
            at: format!("{}[{index}]", self.at),
        };
        elements.into_iter().enumerate().map(element).collect()
    }

    /// The members of an object. Returns `None`, and notes it, if the value is not an object.
    pub(in crate::provider) fn object(&self, reading: &mut Importer<'_>) -> Option<Object<'a>> {
        let Ok(Members(members)) = serde_json::from_str(self.raw.get()) else {
            reading.note(self.at.clone(), FlawKind::Malformed, "must be an object");
            return None;
        };
        Some(Object {
            members,
            raw: self.raw,
            at: self.at.clone(),
        })
    }

    /// The elements that are objects. Others are noted.
    pub(in crate::provider) fn objects(&self, reading: &mut Importer<'_>) -> Vec<Object<'a>> {
        let elements = self.elements(reading);
        elements
            .iter()
            .filter_map(|element| element.object(reading))
            .collect()
    }

    /// The string. If the value is not a string, this is noted and the result is empty.
    pub(in crate::provider) fn text(&self, reading: &mut Importer<'_>) -> String {
        if self.is_text() {
            let text = Piece::of(self.raw).whole();
            if text.replaced {
                reading.replaced.insert(self.at.clone());
            }
            return text.text;
        }
        reading.note(self.at.clone(), FlawKind::Malformed, "must be a string");
        String::new()
    }
}

impl<'a> Object<'a> {
    /// The path of the object.
    pub(in crate::provider) fn at(&self) -> &str {
        &self.at
    }

    /// The path of a member.
    pub(in crate::provider) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    /// The JSON text, unchanged.
    pub(in crate::provider) fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// The JSON text, with unpaired surrogates replaced.
    pub(in crate::provider) fn json(&self) -> String {
        replace_lone_surrogates(self.raw.get()).into_owned()
    }

    /// The names of the members that are not null.
    pub(in crate::provider) fn names(&self) -> impl Iterator<Item = &str> {
        let members = self.members.iter();
        members
            .filter(|(_, raw)| raw.get() != "null")
            .map(|(name, _)| name.as_str())
    }

    /// A member. Returns `None` if it is missing or null.
    pub(in crate::provider) fn get(&self, name: &str) -> Option<Node<'a>> {
        let raw = self.members.get(name).filter(|raw| raw.get() != "null")?;
        Some(Node {
            raw,
            at: self.path(name),
        })
    }

    /// A string member. Empty if it is missing.
    pub(in crate::provider) fn string(&self, name: &str, reading: &mut Importer<'_>) -> String {
        self.get(name)
            .map(|node| node.text(reading))
            .unwrap_or_default()
    }

    /// A required string member. A missing one is noted.
    pub(in crate::provider) fn required(&self, name: &str, reading: &mut Importer<'_>) -> String {
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

impl Importer<'_> {
    /// Notes a role that the format does not have.
    pub(in crate::provider) fn unknown_role(
        &mut self,
        object: &Object<'_>,
        role: &str,
        known: &str,
    ) {
        if !role.is_empty() {
            let why = format!("must be {known}");
            self.note(object.path("role"), FlawKind::Unsupported, why);
        }
    }

    /// Notes a type that is not supported at this position.
    pub(in crate::provider) fn unknown_type(&mut self, object: &Object<'_>, known: &str) {
        let why = format!("must be {known} here");
        self.note(object.path("type"), FlawKind::Unsupported, why);
    }
}
