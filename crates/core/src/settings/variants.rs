//! Determines the names of an enum's variants from its `Deserialize` implementation.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
    forward_to_deserialize_any,
};

/// The names of the variants of an enum, as in the file. Empty if `T` is not an enum.
pub fn variants<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(VariantProbe) {
        Err(VariantNames(names)) => names,
        Ok(_) => &[],
    }
}

/// A deserializer without a value. It fails with the names that the type accepts.
struct VariantProbe;

/// The names that the type accepts.
#[derive(Debug)]
struct VariantNames(&'static [&'static str]);

impl<'de> Deserializer<'de> for VariantProbe {
    type Error = VariantNames;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, VariantNames> {
        Err(VariantNames(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, VariantNames> {
        Err(VariantNames(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl fmt::Display for VariantNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "one of {}", self.0.join(", "))
    }
}

impl std::error::Error for VariantNames {}

impl Error for VariantNames {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_variants_are_those_of_the_file() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Taste {
            VerySweet,
            #[serde(rename = "0")]
            None,
        }
        assert_eq!(variants::<Taste>(), ["very_sweet", "0"]);
        assert_eq!(variants::<u32>(), [] as [&str; 0]);
        let _ = (Taste::VerySweet, Taste::None);
    }
}
