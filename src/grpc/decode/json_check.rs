//! Checks JSON without building a tree: a text of a few megabytes could become a tree of a hundred.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Whether a text is a JSON object, nested at most 128 levels deep (the limit of the parser).
pub(super) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Object>(text).is_ok()
}

/// Whether a text is a JSON object whose values are all JSON objects.
pub(super) fn is_object_of_objects(text: &str) -> bool {
    serde_json::from_str::<Entries>(text).is_ok()
}

/// An object, discarded while it is parsed.
struct Object;

/// An object of objects, discarded while it is parsed.
struct Entries;

/// Any value, discarded while it is parsed.
struct Anything;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Walk).map(|()| Self)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WalkEntries).map(|()| Self)
    }
}

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk).map(|()| Self)
    }
}

/// Visits a value and all values in it.
struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, Anything>()?.is_some() {}
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<Anything>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Visits an object whose values are objects, and all values in them.
struct WalkEntries;

impl<'de> Visitor<'de> for WalkEntries {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, Object>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_objects_pass() {
        let nested = "{\"a\":[1,-2,3.5e7,true,false,null,\"\\u0000\",{\"b\":{}}],\"a\":[]}";
        for text in ["{}", " { } ", "{\"b\":1.50,\"b\":2}", nested] {
            assert!(is_object(text), "{text}");
        }
        for text in ["", "[]", "1", "null", "\"{}\"", "{", "{}{}", "{'a':1}", "{\"a\":\"\0\"}", "{\"a\":1,}", "{1:2}"] {
            assert!(!is_object(text), "{text}");
        }
    }

    #[test]
    fn a_json_object_of_objects_rejects_other_values() {
        for text in ["{}", "{\"a\":{}}", "{\"a\":{\"b\":[1]},\"c\":{}}"] {
            assert!(is_object_of_objects(text), "{text}");
        }
        for text in ["", "[]", "{\"a\":1}", "{\"a\":{},\"b\":null}", "{\"a\":[{}]}", "{\"a\":{}", "{\"a\":{}}{}"] {
            assert!(!is_object_of_objects(text), "{text}");
        }
    }

    #[test]
    fn objects_are_at_most_128_deep() {
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        for (levels, holds) in [(120, true), (200, false), (100_000, false)] {
            assert_eq!(is_object(&deep(levels)), holds, "{levels}");
        }
    }
}
