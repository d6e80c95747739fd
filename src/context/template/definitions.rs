//! How model families write the definitions of tools.

use serde_json::{Map, Value};

use crate::model::Tool;

/// How deep a schema is read. Deeper ones are possible only where one refers to itself.
const MOST_DEPTH: u32 = 8;

/// How a family writes the definition of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definitions {
    /// As a TypeScript type, with descriptions as comments.
    TypeScript,
    /// As JSON with spaces: `{"type": "function", "function": {"name": ..., "description": ...,
    /// "parameters": ...}}`
    Functions,
    /// The same, but of the schema only the properties themselves: what objects and lists hold is
    /// not passed on.
    Shallow,
    /// As JSON with spaces: `{"name": ..., "description": ..., "parameters": ...}`
    Spaced,
    /// As JSON without spaces: `{"name":...,"description":...,"input_schema":...}`
    Compact,
    /// In a form that is not known: its words are counted, the rest is a price per property.
    Words,
}

/// A definition as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Texts to be counted, each by itself.
    pub texts: Vec<String>,
    /// Properties of the schema, nested ones too.
    pub properties: u32,
    /// Those with a description.
    pub described: u32,
    /// Objects inside the schema.
    pub nested: u32,
    /// Lists in the schema.
    pub lists: u32,
    /// Properties that may be null.
    pub nullable: u32,
}

impl Definitions {
    /// Writes a definition.
    pub fn write(self, tool: &Tool) -> Written {
        let schema = tool.input_schema.as_deref().unwrap_or("{}");
        let root = serde_json::from_str(schema).unwrap_or(Value::Null);
        let mut written = Written::default();
        let mut words = vec![tool.name.clone(), tool.description.clone()];
        collect(&root, &root, MOST_DEPTH, &mut words, &mut written);
        written.texts = match self {
            Self::TypeScript => vec![type_script(tool, &root)],
            Self::Functions => vec![function(tool, schema)],
            Self::Shallow => vec![function(tool, &shallow(root, schema))],
            Self::Spaced => vec![spaced_definition(tool, schema)],
            Self::Compact => vec![format!(
                r#"{{"name":{},"description":{},"input_schema":{}}}"#,
                quoted(&tool.name),
                quoted(&tool.description),
                respaced(schema, "")
            )],
            Self::Words => words,
        };
        written
    }
}

/// A function as services take it, as JSON with spaces.
fn function(tool: &Tool, schema: &str) -> String {
    format!(
        r#"{{"type": "function", "function": {}}}"#,
        spaced_definition(tool, schema)
    )
}

/// A schema without what the objects and lists in it hold; one that has none is as it was written.
fn shallow(mut root: Value, schema: &str) -> String {
    let mut is_nested = false;
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties
        .into_iter()
        .flat_map(Map::values_mut)
        .filter_map(Value::as_object_mut)
    {
        for inner in ["properties", "required", "additionalProperties", "items"] {
            is_nested |= property.remove(inner).is_some();
        }
    }
    if is_nested {
        root.to_string()
    } else {
        schema.to_owned()
    }
}

/// Name, description and parameters as JSON with spaces.
fn spaced_definition(tool: &Tool, schema: &str) -> String {
    let name = quoted(&tool.name);
    let description = quoted(&tool.description);
    format!(
        r#"{{"name": {name}, "description": {description}, "parameters": {}}}"#,
        respaced(schema, " ")
    )
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// JSON with this after each comma and colon, and no other white space. Keys keep their order.
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

/// The schema that a reference within the root means; of anything else itself.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
        return schema;
    };
    reference
        .strip_prefix('#')
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .filter(|properties| !properties.is_empty())
}

fn description(schema: &Value) -> Option<&str> {
    schema
        .get("description")
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// The words of a schema, and its properties.
fn collect(
    schema: &Value,
    root: &Value,
    depth: u32,
    words: &mut Vec<String>,
    written: &mut Written,
) {
    let Some(deeper) = depth.checked_sub(1) else {
        return;
    };
    let schema = resolved(schema, root);
    for (name, property) in properties(schema).into_iter().flatten() {
        words.push(name.clone());
        written.properties += 1;
        let target = resolved(property, root);
        if let Some(text) = description(target) {
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
    for either in alternatives(schema) {
        collect(either, root, deeper, words, written);
    }
    let values = schema.get("enum").and_then(Value::as_array);
    words.extend(
        values
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned),
    );
}

fn is_nullable(schema: &Value) -> bool {
    let null = |kind: &Value| kind == "null";
    schema.get("nullable") == Some(&Value::Bool(true))
        || schema
            .get("type")
            .and_then(Value::as_array)
            .is_some_and(|kinds| kinds.iter().any(null))
        || alternatives(schema).any(|either| either.get("type").is_some_and(null))
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| schema.get(key).and_then(Value::as_array));
    lists.flatten()
}

/// A tool as a TypeScript type.
fn type_script(tool: &Tool, root: &Value) -> String {
    let mut out = String::new();
    if !tool.description.is_empty() {
        out.push_str(&format!("// {}\n", tool.description));
    }
    let name = &tool.name;
    match properties(root) {
        Some(_) => out.push_str(&format!(
            "type {name} = (_: {{\n{}\n}}) => any;\n\n",
            members(root, root, MOST_DEPTH)
        )),
        None => out.push_str(&format!("type {name} = () => any;\n\n")),
    }
    out
}

/// The properties of an object as members of a type.
fn members(schema: &Value, root: &Value, depth: u32) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let member = |(name, property): (&String, &Value)| {
        let target = resolved(property, root);
        let comment = description(property).or_else(|| description(target));
        let comment = comment
            .map(|text| format!("// {text}\n"))
            .unwrap_or_default();
        let optional = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        let default = target
            .get("default")
            .map(|default| format!(" // default: {}", plain(default)))
            .unwrap_or_default();
        format!(
            "{comment}{name}{optional}: {},{default}",
            type_of(property, root, depth)
        )
    };
    properties(schema)
        .into_iter()
        .flatten()
        .map(member)
        .collect::<Vec<_>>()
        .join("\n")
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The TypeScript type of a schema.
fn type_of(schema: &Value, root: &Value, depth: u32) -> String {
    let Some(deeper) = depth.checked_sub(1) else {
        return "any".to_owned();
    };
    let schema = resolved(schema, root);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" | ");
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    let either: Vec<String> = alternatives(schema)
        .map(|either| type_of(either, root, deeper))
        .collect();
    if !either.is_empty() {
        return either.join(" | ");
    }
    match schema.get("type") {
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names
                .map(|name| named_type(name, schema, root, deeper))
                .collect::<Vec<_>>()
                .join(" | ")
        }
        Some(name) => named_type(name.as_str().unwrap_or(""), schema, root, deeper),
        None => named_type(
            if properties(schema).is_some() {
                "object"
            } else {
                ""
            },
            schema,
            root,
            deeper,
        ),
    }
}

fn named_type(name: &str, schema: &Value, root: &Value, depth: u32) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "string" | "boolean" | "null" => name.to_owned(),
        "array" => format!(
            "{}[]",
            schema
                .get("items")
                .map_or("any".to_owned(), |items| type_of(items, root, depth))
        ),
        "object" if properties(schema).is_some() => {
            format!("{{\n{}\n}}", members(schema, root, depth))
        }
        "object" => name.to_owned(),
        _ => "any".to_owned(),
    }
}
