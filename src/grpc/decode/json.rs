//! Decodes JSON in strings, and converts Structs to JSON text.

use serde_json::{Map, Number, Value};

use super::{Findings, Path, json_check, text};
use crate::pb::FieldReason;

/// Integers up to this are exact in a double.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Decodes a JSON object that may be empty. The text is not changed: key order, duplicates and number formats
/// are kept.
pub(super) fn optional_object(at: Path<'_>, text: String, found: &mut Findings) -> Option<String> {
    if !text.is_empty() {
        check_object(at, &text, found);
    }
    text::non_empty(text)
}

/// Reports a text that is not a JSON object.
pub(super) fn check_object(at: Path<'_>, text: &str, found: &mut Findings) {
    if !json_check::is_object(text) {
        found.invalid(at, FieldReason::NotJson, "must be a JSON object");
    }
}

/// Converts a Struct to JSON text.
pub(super) fn from_struct(at: Path<'_>, object: prost_types::Struct, found: &mut Findings) -> String {
    let text = object_value(object).map(|object| object.to_string());
    if text.is_none() {
        found.invalid(at, FieldReason::Invalid, "must contain only values that JSON can represent");
    }
    text.unwrap_or_default()
}

fn object_value(object: prost_types::Struct) -> Option<Value> {
    let prost_types::Struct { fields } = object;
    fields
        .into_iter()
        .map(|(name, field)| Some((name, value(field)?)))
        .collect::<Option<Map<_, _>>>()
        .map(Value::Object)
}

/// Returns `None` for a value without a kind, and for numbers that JSON does not have. The recursion is
/// bounded, because prost limits the nesting.
fn value(value: prost_types::Value) -> Option<Value> {
    use prost_types::value::Kind;
    match value.kind? {
        Kind::NullValue(_) => Some(Value::Null),
        Kind::NumberValue(double) => number(double).map(Value::Number),
        Kind::StringValue(text) => Some(Value::String(text)),
        Kind::BoolValue(bool) => Some(Value::Bool(bool)),
        Kind::StructValue(object) => object_value(object),
        Kind::ListValue(list) => list.values.into_iter().map(self::value).collect::<Option<_>>().map(Value::Array),
    }
}

/// Whole numbers are written without a fraction, as people write them in schemas.
fn number(double: f64) -> Option<Number> {
    if double.fract() == 0.0 && double.abs() <= MAX_EXACT_INTEGER {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough to be exact")]
        return Some(Number::from(double as i64));
    }
    Number::from_f64(double)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_kept_as_sent() {
        let mut found = Findings::new("rpc", Default::default());
        for text in [" {\"b\":1.50,\"a\":1e2,\"b\":2} ", "[]"] {
            let kept = optional_object(Path::to("x"), text.into(), &mut found);
            assert_eq!(kept.as_deref(), Some(text));
        }
        assert!(found.finish(Ok(())).is_err());
    }

    #[test]
    fn whole_numbers_of_a_struct_are_written_without_a_fraction() {
        for (double, text) in [(0.0, "0"), (-0.0, "0"), (10.0, "10"), (-3.0, "-3"), (0.5, "0.5"), (1e300, "1e+300")] {
            assert_eq!(number(double).map(|number| number.to_string()).as_deref(), Some(text));
        }
        for double in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(number(double), None);
        }
    }
}
