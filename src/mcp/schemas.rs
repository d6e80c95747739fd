//! Adapts tool schemas to what providers accept: a top-level object without alternatives. A provider would reject every
//! request whose tool set contains another schema.

use serde_json::{Map, Value, json};

/// Keywords that providers reject at the top level of a schema.
const REFUSED: [&str; 5] = ["oneOf", "anyOf", "allOf", "not", "enum"];

/// The schema of a tool's arguments in a form that providers accept; unchanged if they accept it. Alternatives are
/// merged into one object with all their properties. A property is required only if every alternative requires it.
pub(super) fn normalized(schema: &str) -> String {
    let Ok(Value::Object(mut object)) = serde_json::from_str(schema) else {
        return empty().to_string();
    };
    let is_object = object.get("type") == Some(&json!("object"));
    if is_object && REFUSED.iter().all(|keyword| !object.contains_key(*keyword)) {
        return schema.to_owned();
    }
    let may_be_object = match object.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.contains(&json!("object")),
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => false,
    };
    if !may_be_object {
        return empty().to_string();
    }
    merge(&mut object);
    for keyword in REFUSED {
        object.remove(keyword);
    }
    object.insert("type".to_owned(), json!("object"));
    object.entry("properties").or_insert_with(|| json!({}));
    Value::Object(object).to_string()
}

fn empty() -> Value {
    json!({"type": "object", "properties": {}})
}

/// Merges the properties of the top-level alternatives and what they require.
fn merge(object: &mut Map<String, Value>) {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(parts)) = object.get(keyword).cloned() else {
            continue;
        };
        let parts: Vec<Map<String, Value>> = parts.iter().filter_map(|part| resolved(object, part)).collect();
        for part in &parts {
            let Some(Value::Object(more)) = part.get("properties") else {
                continue;
            };
            let known = object.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(known) = known {
                for (name, schema) in more {
                    known.entry(name.as_str()).or_insert_with(|| schema.clone());
                }
            }
        }
        let all = keyword == "allOf";
        let mut required = names(object);
        for name in parts.iter().flat_map(names) {
            let of_each = || parts.iter().all(|part| names(part).contains(&name));
            if !required.contains(&name) && (all || of_each()) {
                required.push(name);
            }
        }
        if !required.is_empty() {
            object.insert("required".to_owned(), json!(required));
        }
    }
}

/// An alternative; a `$ref` is resolved within the same schema.
fn resolved(object: &Map<String, Value>, part: &Value) -> Option<Map<String, Value>> {
    let part = match part.get("$ref").and_then(Value::as_str) {
        Some(place) => {
            let mut steps = place.strip_prefix("#/")?.split('/');
            let first = object.get(steps.next()?)?;
            steps.try_fold(first, |value, step| value.get(step))?
        }
        None => part,
    };
    part.as_object().cloned()
}

/// The properties that a schema requires.
fn names(object: &Map<String, Value>) -> Vec<String> {
    let names = object.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m11_a_schema_that_services_refuse_is_an_object_without_alternatives() {
        let text = |name: &str| json!({ name: {"type": "string"} });
        let table = [
            (
                json!({"properties": text("a"), "required": ["a"]}),
                json!({"type": "object", "properties": text("a"), "required": ["a"]}),
            ),
            (json!({}), empty()),
            (json!({"type": "string"}), empty()),
            (json!(true), empty()),
            (
                json!({"type": ["object", "null"], "properties": text("a")}),
                json!({"type": "object", "properties": text("a")}),
            ),
            (
                json!({"type": "object", "oneOf": [
                    {"properties": text("a"), "required": ["a", "c"]},
                    {"properties": text("b"), "required": ["c", "b"]},
                ], "required": ["d"]}),
                json!({"type": "object", "required": ["d", "c"], "properties": {
                    "a": {"type": "string"}, "b": {"type": "string"},
                }}),
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "$defs": {"A": {"properties": text("a")}}}),
                json!({"type": "object", "properties": text("a"), "$defs": {"A": {"properties": text("a")}}}),
            ),
            (
                json!({"allOf": [{"required": ["a"]}, {"properties": text("a")}], "not": {}}),
                json!({"type": "object", "properties": text("a"), "required": ["a"]}),
            ),
        ];
        for (schema, expected) in table {
            let mended: Value = serde_json::from_str(&normalized(&schema.to_string())).unwrap();
            assert_eq!(mended, expected, "{schema}");
        }
        let good = r#"{ "type":"object", "properties":{"n":{"anyOf":[{}]}} }"#;
        assert_eq!(normalized(good), good, "the text is as it was");
    }
}
