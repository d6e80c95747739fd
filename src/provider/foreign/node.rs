//! JSON values with their paths. Values are parsed only when they are accessed.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::{FlawKind, ForeignPart, Importer};
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
pub(crate) struct Node<'a> {
    /// The JSON text, unchanged.
    pub(crate) raw: &'a RawValue,
    /// The path of the value.
    pub(crate) at: String,
}

/// A JSON object and its path.
#[derive(Debug, Clone)]
pub(crate) struct Object<'a> {
    members: BTreeMap<String, &'a RawValue>,
    /// The JSON text, unchanged.
    pub(crate) raw: &'a RawValue,
    /// The path of the object.
    pub(crate) at: String,
}

impl<'a> Node<'a> {
    /// The root value.
    pub(super) fn root(raw: &'a RawValue) -> Self {
        Self { raw, at: String::new() }
    }

    /// Whether the value is an array.
    pub(crate) fn is_array(&self) -> bool {
        self.raw.get().starts_with('[')
    }

    /// Whether the value is an object.
    pub(crate) fn is_object(&self) -> bool {
        self.raw.get().starts_with('{')
    }

    /// Whether the value is a string.
    pub(crate) fn is_text(&self) -> bool {
        self.raw.get().starts_with('"')
    }

    /// The JSON text, with unpaired surrogates replaced.
    pub(crate) fn json(&self) -> String {
        replace_lone_surrogates(self.raw.get()).into_owned()
    }

    /// The parsed value.
    pub(crate) fn value(&self) -> Value {
        lenient::value(self.raw.get()).unwrap_or_default()
    }

    /// The elements of an array. If the value is not an array or is too long, this is noted and the
    /// result is empty.
    pub(crate) fn elements(&self, reading: &mut Importer<'_>) -> Vec<Self> {
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
        let element = |(index, raw)| Self { raw, at: format!("{}[{index}]", self.at) };
        elements.into_iter().enumerate().map(element).collect()
    }

    /// The members of an object. Returns `None`, and notes it, if the value is not an object.
    pub(crate) fn object(&self, reading: &mut Importer<'_>) -> Option<Object<'a>> {
        let Ok(Members(members)) = serde_json::from_str(self.raw.get()) else {
            reading.note(self.at.clone(), FlawKind::Malformed, "must be an object");
            return None;
        };
        Some(Object { members, raw: self.raw, at: self.at.clone() })
    }

    /// The elements that are objects. Others are noted.
    pub(crate) fn objects(&self, reading: &mut Importer<'_>) -> Vec<Object<'a>> {
        let elements = self.elements(reading).into_iter();
        elements.filter_map(|it| it.object(reading)).collect()
    }

    /// The string. If the value is not a string, this is noted and the result is empty.
    pub(crate) fn text(&self, reading: &mut Importer<'_>) -> String {
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

    /// The string, or the JSON text of another value.
    pub(crate) fn text_or_json(&self, reading: &mut Importer<'_>) -> String {
        if self.is_text() { self.text(reading) } else { self.json() }
    }
}

impl<'a> Object<'a> {
    /// The path of a member.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    /// The JSON text, with unpaired surrogates replaced.
    pub(crate) fn json(&self) -> String {
        replace_lone_surrogates(self.raw.get()).into_owned()
    }

    /// The names of the members that are not null.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let members = self.members.iter();
        members.filter(|(_, raw)| raw.get() != "null").map(|(name, _)| name.as_str())
    }

    /// A member. Returns `None` if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<Node<'a>> {
        let raw = self.members.get(name).filter(|raw| raw.get() != "null")?;
        Some(Node { raw, at: self.path(name) })
    }

    /// A string member. Empty if it is missing.
    pub(crate) fn string(&self, name: &str, reading: &mut Importer<'_>) -> String {
        self.get(name).map(|node| node.text(reading)).unwrap_or_default()
    }

    /// A required string member. A missing one is noted.
    pub(crate) fn required(&self, name: &str, reading: &mut Importer<'_>) -> String {
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

    /// A required member. A missing one is noted.
    pub(crate) fn node(&self, name: &str, reading: &mut Importer<'_>) -> Option<Node<'a>> {
        self.get(name).or_else(|| reading.missing(self, name, "must be set"))
    }

    /// A required member that is an object. Anything else is noted.
    pub(crate) fn object(&self, name: &str, reading: &mut Importer<'_>) -> Option<Object<'a>> {
        self.node(name, reading)?.object(reading)
    }

    /// A string member, or the JSON of another value. Empty if it is missing.
    pub(crate) fn text_or_json(&self, name: &str, reading: &mut Importer<'_>) -> String {
        let node = self.get(name);
        node.map(|node| node.text_or_json(reading)).unwrap_or_default()
    }

    /// The elements of an array member. Empty if it is missing.
    pub(crate) fn elements(&self, name: &str, reading: &mut Importer<'_>) -> Vec<Node<'a>> {
        let list = self.get(name);
        list.map(|list| list.elements(reading)).unwrap_or_default()
    }

    /// The elements of an array member that are objects. Empty if it is missing.
    pub(crate) fn objects(&self, name: &str, reading: &mut Importer<'_>) -> Vec<Self> {
        let list = self.get(name);
        list.map(|list| list.objects(reading)).unwrap_or_default()
    }

    /// Reads a member that is one text or a list of parts.
    pub(crate) fn parts(
        &self,
        name: &str,
        read: impl Fn(&Self, &mut Importer<'_>) -> Option<ForeignPart>,
        reading: &mut Importer<'_>,
    ) -> Vec<ForeignPart> {
        match self.get(name) {
            None => Vec::new(),
            Some(content) if content.is_array() => {
                let parts = content.objects(reading).into_iter();
                parts.filter_map(|part| read(&part, reading)).collect()
            }
            Some(content) => {
                let text = ForeignPart::text(&content.at, content.text(reading));
                text.into_iter().collect()
            }
        }
    }

    /// The part for a text in a member.
    pub(crate) fn text_part(&self, reading: &mut Importer<'_>) -> Option<ForeignPart> {
        ForeignPart::text(&self.at, self.string("text", reading))
    }

    /// Whether a member is true.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|raw| raw.get() == "true")
    }
}

impl Importer<'_> {
    /// Notes a role that the format does not have.
    pub(crate) fn unknown_role(&mut self, object: &Object<'_>, role: &str, known: &str) {
        if !role.is_empty() {
            let why = format!("must be {known}");
            self.note(object.path("role"), FlawKind::Unsupported, why);
        }
    }

    /// Notes a type that is not supported at this position. Returns `None` in place of the value.
    pub(crate) fn unknown_type<T>(&mut self, object: &Object<'_>, known: &str) -> Option<T> {
        let why = format!("must be {known} here");
        self.note(object.path("type"), FlawKind::Unsupported, why);
        None
    }

    /// Notes a missing member. Returns `None` in its place.
    pub(crate) fn missing<T>(&mut self, object: &Object<'_>, name: &str, why: &str) -> Option<T> {
        self.note(object.path(name), FlawKind::Missing, why);
        None
    }
}
