//! Generates the reference of all settings, and the JSON schema of the configuration file, from their declarations.

use serde_json::{Map, Value, json};

use super::Config;
use crate::settings::{AllowedRange, Declared, Entry, Kind, Nested, Section as _};

/// The placeholder for the name in the key of a named section.
const NAME: &str = "NAME";
/// The unit of sizes, which are shown in larger units.
const BYTES: &str = "bytes";
/// A pattern that matches durations such as `1h 30m`.
const DURATION: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*(ns|us|ms|s|m|h)\s*)+$";

const TITLE: &str = "\
# Settings

All keys of the configuration file, with their defaults and ranges. This page is the output of `contextd config reference`. A duration is
a string with units, such as `500ms`, `15s` or `1h 30m`; sizes are numbers of bytes, shown here in KiB and
MiB; the ranges of other values name their unit. `contextd config print` shows the values
in force and their sources, `contextd config validate` checks them. Sections with `NAME` exist once per name.
";

/// All settings as Markdown: one table per section, with defaults, ranges and documentation.
pub fn markdown() -> String {
    let mut page = TITLE.to_owned();
    write_section(&mut page, "", "", &Config::declared());
    page
}

/// Writes a section, and those within it. `kind` is the kind of the named section that it belongs to.
fn write_section(page: &mut String, prefix: &str, kind: &str, section: &Declared) {
    let all = flattened(&section.entries);
    let (sections, settings): (Vec<&Entry>, Vec<&Entry>) =
        all.iter().partition(|entry| !entry.kind.sections().is_empty());
    if !settings.is_empty() {
        // The comment begins with the heading.
        let (_, about) = section.about.split_once("`: ").unwrap_or(("", &section.about));
        let of_kind = match kind {
            "" => String::new(),
            kind => format!(" of `kind = \"{kind}\"`"),
        };
        page.push_str(&format!("\n## `[{prefix}]`{of_kind}\n\n{}\n\n", capitalized(about)));
        page.push_str("| setting | default | range | |\n|---|---|---|---|\n");
        for entry in settings {
            page.push_str(&row(entry));
        }
    }
    for entry in sections {
        let key = entry.key(prefix);
        for nested in entry.kind.sections() {
            let Nested { is_named, kind: own, section } = nested;
            let kind = if own.is_empty() { kind } else { own };
            if !is_named {
                write_section(page, &key, kind, &section);
                continue;
            }
            write_section(page, &format!("{key}.{NAME}"), kind, &section);
            for (name, table) in entry.default.as_object().into_iter().flatten() {
                let set = differing(table, &section);
                if !set.is_empty() {
                    page.push_str(&format!("\n`{key}.{name}` exists by default, with {}.\n", set.join(", ")));
                }
            }
        }
    }
}

/// The settings of a table that are not the defaults of its section.
fn differing(table: &Value, section: &Declared) -> Vec<String> {
    let own = section.entries.iter().filter(|entry| entry.kind.sections().is_empty());
    let set = own.filter_map(|entry| {
        let value = table.get(entry.name)?;
        (*value != entry.default).then(|| format!("`{} = {}`", entry.name, text(value)))
    });
    set.collect()
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The settings of a section, with flattened sections replaced by their settings.
fn flattened(entries: &[Entry]) -> Vec<Entry> {
    let inner = |entry: &Entry| {
        if entry.is_flattened {
            let sections = entry.kind.sections().into_iter();
            sections.flat_map(|nested| nested.section.entries).collect()
        } else {
            vec![entry.clone()]
        }
    };
    entries.iter().flat_map(inner).collect()
}

fn row(entry: &Entry) -> String {
    let default = match &entry.default {
        Value::Null => "not set".to_owned(),
        Value::Object(map) if map.is_empty() => "none".to_owned(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
            format!("`{}`", amount(value, unit(entry)))
        }
    };
    let doc = entry.doc.replace('|', "\\|");
    format!("| `{}` | {default} | {} | {doc} |\n", entry.name, range(entry))
}

fn range(entry: &Entry) -> String {
    if let Some(AllowedRange { min: least, max: most, unit }) = &entry.allowed {
        let [least, most] = [least, most].map(|end| amount(end, unit));
        let unit = if *unit == BYTES { "" } else { unit };
        return format!("{least} to {most} {unit}").trim_end().to_owned();
    }
    if let Kind::Choice(names) = entry.kind {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        return names.join(", ");
    }
    let is_duration = matches!(entry.kind, Kind::Duration);
    if is_duration { "duration" } else { "" }.to_owned()
}

fn unit(entry: &Entry) -> &'static str {
    entry.allowed.as_ref().map_or("", |allowed| allowed.unit)
}

/// A value for display: bytes are shown in the largest unit of which they are a multiple.
fn amount(value: &Value, unit: &str) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let bytes = value.as_u64().filter(|_| unit == BYTES);
    let in_unit = bytes.and_then(|bytes| {
        let (shift, name) = UNITS.into_iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0)?;
        Some(format!("{} {name}", bytes >> shift))
    });
    in_unit.unwrap_or_else(|| text(value))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The JSON schema of a configuration file.
pub fn schema() -> Value {
    schema_of(&Config::declared())
}

fn schema_of(section: &Declared) -> Value {
    let mut properties = Map::new();
    for entry in flattened(&section.entries) {
        properties.insert(entry.name.to_owned(), schema_of_setting(&entry));
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// The schema of one setting.
fn schema_of_setting(entry: &Entry) -> Value {
    let by_name = |of: Value| json!({ "type": "object", "additionalProperties": of });
    match entry.kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer => with_range("integer", entry),
        Kind::Number => with_range("number", entry),
        Kind::Text | Kind::Secret => json!({ "type": "string" }),
        Kind::Duration => json!({ "type": "string", "pattern": DURATION }),
        Kind::Choice(names) => json!({ "enum": names }),
        Kind::Secrets | Kind::TextsByName => by_name(json!({ "type": "string" })),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Section(section) => schema_of(&section()),
        Kind::Sections(section) => by_name(schema_of(&section())),
        Kind::SectionsByKind(kinds) => {
            let of_kind = |(kind, section): (&str, Declared)| {
                let mut schema = schema_of(&section);
                schema["properties"]["kind"] = json!({ "const": kind });
                schema
            };
            let kinds: Vec<Value> = kinds().into_iter().map(of_kind).collect();
            by_name(json!({ "anyOf": kinds }))
        }
        Kind::Tables => by_name(json!({ "type": "object" })),
    }
}

fn with_range(kind: &str, entry: &Entry) -> Value {
    let mut schema = json!({ "type": kind });
    if let Some(AllowedRange { min: least, max: most, .. }) = &entry.allowed {
        schema["minimum"] = least.clone();
        schema["maximum"] = most.clone();
    }
    schema
}
