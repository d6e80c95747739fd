//! Renders tool definitions in the form of each model family.

use std::{cell::Cell, collections::BTreeSet};

use serde_json::{Map, Value};

use crate::model::Tool;

/// Maximum depth to which a schema is read. Only a schema that refers to itself can be deeper.
const MAX_DEPTH: u32 = 8;
/// Maximum amount of a schema to read: the bytes of names and texts, plus [`VISIT`] for each nested schema. A schema
/// without references is read completely; with references it could be as large as the depth allows.
const MAX_READ_BYTES: usize = 1 << 20;
/// Cost of visiting a schema, in the same unit.
const VISIT: usize = 16;

/// The form of a tool definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definitions {
    /// A TypeScript type, with descriptions as comments.
    TypeScript,
    /// JSON with spaces: `{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}`
    Functions,
    /// Like `Functions`, but with only the top level of the schema's properties: the contents of objects and lists are
    /// left out.
    Shallow,
    /// JSON with spaces: `{"name": ..., "description": ..., "parameters": ...}`
    Spaced,
    /// JSON without spaces: `{"name":...,"description":...,"input_schema":...}`
    Compact,
    /// XML with a tag for each name, type and description, as in Qwen 3 Coder's chat template.
    Xml,
    /// The form is not known: names and texts are counted, and the rest is a price per property.
    NamesAndTexts,
}

/// A rendered definition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenderedDefinition {
    /// Texts to count, each separately.
    pub texts: Vec<String>,
    /// Number of properties in the schema, nested ones included.
    pub properties: u32,
    /// Number of properties with a description.
    pub described: u32,
    /// Number of objects inside the schema.
    pub nested: u32,
    /// Number of lists in the schema.
    pub lists: u32,
    /// Number of properties that may be null.
    pub nullable: u32,
}

impl Definitions {
    /// Renders a definition.
    pub fn write(self, tool: &Tool) -> RenderedDefinition {
        let schema = tool.input_schema.as_deref().unwrap_or("{}");
        let value = serde_json::from_str(schema).unwrap_or(Value::Null);
        let mut written = RenderedDefinition::default();
        let mut words = vec![tool.name.clone(), tool.description.clone()];
        let root = Root::new(&value);
        collect(&value, &root, MAX_DEPTH, &mut words, &mut written);
        written.texts = match self {
            Self::TypeScript => vec![type_script(tool, &Root::new(&value))],
            Self::Functions => vec![function(tool, schema)],
            Self::Shallow => vec![function(tool, &shallow(value, schema))],
            Self::Spaced => vec![spaced_definition(tool, schema)],
            Self::Compact => vec![format!(
                r#"{{"name":{},"description":{},"input_schema":{}}}"#,
                quoted(&tool.name),
                quoted(&tool.description),
                respaced(schema, "")
            )],
            Self::Xml => vec![xml(tool, &value)],
            Self::NamesAndTexts => words,
        };
        written
    }
}

/// A function in the format of the APIs, as JSON with spaces.
fn function(tool: &Tool, schema: &str) -> String {
    format!(r#"{{"type": "function", "function": {}}}"#, spaced_definition(tool, schema))
}

/// The schema without the contents of its objects and lists. A schema without any is returned as it was written.
fn shallow(mut root: Value, schema: &str) -> String {
    let mut is_nested = false;
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        for inner in ["properties", "required", "additionalProperties", "items"] {
            is_nested |= property.remove(inner).is_some();
        }
    }
    if is_nested { root.to_string() } else { schema.to_owned() }
}

/// A function as XML. Attributes of a property other than type and description are written as JSON.
fn xml(tool: &Tool, schema: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let tag = |out: &mut String, name: &str, text: &str| {
        out.push_str(&format!("\n<{name}>{text}</{name}>"));
    };
    let others = |out: &mut String, of: &Value, known: &[&str]| {
        for (key, value) in of.as_object().into_iter().flatten() {
            if !known.contains(&key.as_str()) {
                tag(out, key, &text(value));
            }
        }
    };
    let mut out = "\n<function>".to_owned();
    tag(&mut out, "name", &tool.name);
    if !tool.description.is_empty() {
        tag(&mut out, "description", tool.description.trim());
    }
    out.push_str("\n<parameters>");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        out.push_str("\n<parameter>");
        tag(&mut out, "name", name);
        for key in ["type", "description"] {
            if !property[key].is_null() {
                tag(&mut out, key, text(&property[key]).trim());
            }
        }
        others(&mut out, property, &["name", "type", "description"]);
        out.push_str("\n</parameter>");
    }
    others(&mut out, schema, &["type", "properties"]);
    out.push_str("\n</parameters>\n</function>");
    out
}

/// Name, description and parameters as JSON with spaces.
fn spaced_definition(tool: &Tool, schema: &str) -> String {
    let name = quoted(&tool.name);
    let description = quoted(&tool.description);
    format!(r#"{{"name": {name}, "description": {description}, "parameters": {}}}"#, respaced(schema, " "))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// JSON with `space` after each comma and colon, and no other white space. The order of keys is kept.
fn respaced(json: &str, space: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut in_text = false;
    let mut escaped = false;
    for char in json.chars() {
        if in_text {
            out.push(char);
            in_text = escaped || char != '"';
            escaped = !escaped && char == '\\';
            continue;
        }
        if char.is_whitespace() {
            continue;
        }
        out.push(char);
        in_text = char == '"';
        if matches!(char, ',' | ':') {
            out.push_str(space);
        }
    }
    out
}

/// A whole schema, and how much of it may still be read.
struct Root<'a> {
    value: &'a Value,
    left: Cell<usize>,
}

impl<'a> Root<'a> {
    fn new(value: &'a Value) -> Self {
        let left = Cell::new(MAX_READ_BYTES);
        Self { value, left }
    }

    /// Charges the cost of reading this many bytes. Returns false if the limit is reached.
    fn spend(&self, bytes: usize) -> bool {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        left > 0
    }
}

/// The schema that a reference within the root points to; a schema without a reference is returned unchanged.
fn resolved<'a>(schema: &'a Value, root: &Root<'a>) -> &'a Value {
    let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
        return schema;
    };
    reference.strip_prefix('#').and_then(|pointer| root.value.pointer(pointer)).unwrap_or(schema)
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty())
}

fn description(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Collects the texts and the properties of a schema.
fn collect<'a>(
    schema: &'a Value,
    root: &Root<'a>,
    depth: u32,
    words: &mut Vec<String>,
    written: &mut RenderedDefinition,
) {
    let Some(deeper) = depth.checked_sub(1) else {
        return;
    };
    let schema = resolved(schema, root);
    for (name, property) in properties(schema).into_iter().flatten() {
        if !root.spend(VISIT + name.len()) {
            return;
        }
        words.push(name.clone());
        written.properties += 1;
        let target = resolved(property, root);
        if let Some(text) = description(target)
            && root.spend(text.len())
        {
            words.push(text.to_owned());
            written.described += 1;
        }
        written.nested += u32::from(properties(target).is_some());
        written.nullable += u32::from(is_nullable(target));
        collect(property, root, deeper, words, written);
    }
    if let Some(items) = schema.get("items") {
        written.lists += 1;
        written.nested += u32::from(properties(resolved(items, root)).is_some());
        collect(items, root, deeper, words, written);
    }
    for either in alternatives(schema).take_while(|_| root.spend(VISIT)) {
        collect(either, root, deeper, words, written);
    }
    let values = schema.get("enum").and_then(Value::as_array);
    words.extend(
        values
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .take_while(|value| root.spend(value.len()))
            .map(str::to_owned),
    );
}

fn is_nullable(schema: &Value) -> bool {
    let null = |kind: &Value| kind == "null";
    schema.get("nullable") == Some(&Value::Bool(true))
        || schema.get("type").and_then(Value::as_array).is_some_and(|kinds| kinds.iter().any(null))
        || alternatives(schema).any(|either| either.get("type").is_some_and(null))
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key).and_then(Value::as_array));
    lists.flatten()
}

/// Renders a tool as a TypeScript type.
fn type_script(tool: &Tool, root: &Root<'_>) -> String {
    let mut out = String::new();
    if !tool.description.is_empty() {
        out.push_str(&format!("// {}\n", tool.description));
    }
    let name = &tool.name;
    match properties(root.value) {
        Some(_) => {
            out.push_str(&format!("type {name} = (_: {{\n{}\n}}) => any;\n\n", members(root.value, root, MAX_DEPTH)))
        }
        None => out.push_str(&format!("type {name} = () => any;\n\n")),
    }
    out
}

/// Renders the properties of an object as members of a type.
fn members<'a>(schema: &'a Value, root: &Root<'a>, depth: u32) -> String {
    let required: BTreeSet<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let member = |(name, property): (&String, &'a Value)| {
        let target = resolved(property, root);
        let comment = description(property).or_else(|| description(target));
        let comment =
            comment.filter(|text| root.spend(text.len())).map(|text| format!("// {text}\n")).unwrap_or_default();
        let optional = if required.contains(name.as_str()) { "" } else { "?" };
        let default = target
            .get("default")
            .map(|default| format!(" // default: {}", plain(default)))
            .filter(|text| root.spend(text.len()))
            .unwrap_or_default();
        format!("{comment}{name}{optional}: {},{default}", type_of(property, root, depth))
    };
    properties(schema)
        .into_iter()
        .flatten()
        .take_while(|(name, _)| root.spend(VISIT + name.len()))
        .map(member)
        .collect::<Vec<_>>()
        .join("\n")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The TypeScript type of a schema.
fn type_of<'a>(schema: &'a Value, root: &Root<'a>, depth: u32) -> String {
    let Some(deeper) = depth.checked_sub(1) else {
        return "any".to_owned();
    };
    let schema = resolved(schema, root);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values
            .iter()
            .map(Value::to_string)
            .take_while(|value| root.spend(value.len()))
            .collect::<Vec<_>>()
            .join(" | ");
    }
    if let Some(value) = schema.get("const") {
        let text = value.to_string();
        root.spend(text.len());
        return text;
    }
    let either: Vec<String> =
        alternatives(schema).take_while(|_| root.spend(VISIT)).map(|either| type_of(either, root, deeper)).collect();
    if !either.is_empty() {
        return either.join(" | ");
    }
    match schema.get("type") {
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names
                .take_while(|name| root.spend(VISIT + name.len()))
                .map(|name| named_type(name, schema, root, deeper))
                .collect::<Vec<_>>()
                .join(" | ")
        }
        Some(name) => named_type(name.as_str().unwrap_or(""), schema, root, deeper),
        None => named_type(if properties(schema).is_some() { "object" } else { "" }, schema, root, deeper),
    }
}

fn named_type<'a>(name: &str, schema: &'a Value, root: &Root<'a>, depth: u32) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "string" | "boolean" | "null" => name.to_owned(),
        "array" => format!("{}[]", schema.get("items").map_or("any".to_owned(), |items| type_of(items, root, depth))),
        "object" if properties(schema).is_some() => {
            format!("{{\n{}\n}}", members(schema, root, depth))
        }
        "object" => name.to_owned(),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing::{assert_linear_time, wide_schema};

    fn tool(schema: String) -> Tool {
        Tool { input_schema: Some(schema), ..crate::context::testing::tool("look") }
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_read_up_to_a_bound() {
        let itself = (0..50).map(|i| format!(r##""p{i}":{{"$ref":"#"}}"##));
        let itself = itself.collect::<Vec<_>>().join(",");
        let described = "words ".repeat(20_000);
        let schema = format!(r##"{{"type":"object","description":"{described}","properties":{{{itself}}}}}"##);
        for form in [Definitions::TypeScript, Definitions::NamesAndTexts] {
            let written = form.write(&tool(schema.clone()));
            let bytes: usize = written.texts.iter().map(String::len).sum();
            assert!(bytes <= 4 * MAX_READ_BYTES, "{form:?}: {bytes}");
        }
    }

    #[test]
    fn a_schema_without_references_is_read_whole() {
        let names = 20_000;
        let flat = (0..names).map(|i| format!(r#""p{i}":{{}}"#));
        let flat = flat.collect::<Vec<_>>().join(",");
        let schema = format!(r#"{{"type":"object","properties":{{{flat}}}}}"#);
        let written = Definitions::NamesAndTexts.write(&tool(schema));
        assert_eq!(written.properties, names);
    }

    #[test]
    fn a_hundred_thousand_properties_are_not_compared_with_as_many_required_ones() {
        let schema = wide_schema(100_000);
        for form in [Definitions::TypeScript, Definitions::NamesAndTexts] {
            let tool = tool(schema.clone());
            let written = assert_linear_time(&format!("{form:?}"), || form.write(&tool));
            assert!(written.properties > 10_000, "{form:?}");
        }
    }
}
