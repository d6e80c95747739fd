//! Prints the settings in force as TOML, with secrets hidden and the origin of each value.

use serde_json::Value;

use super::explicit_values::Origins;
use super::layers::{Path, dotted};
use super::load::{LoadedConfig, json_of};

/// The settings as TOML. Values that are not defaults have a comment with their origin. Settings that are not set are
/// listed in comments.
pub fn print(loaded: &LoadedConfig) -> String {
    let mut lines = Vec::new();
    print_table(&mut lines, &Path::new(), &json_of(&loaded.config), &loaded.origins);
    lines.concat().trim_start().to_owned()
}

fn print_table(lines: &mut Vec<String>, path: &Path, table: &Value, origins: &Origins) {
    let (tables, values): (Vec<_>, Vec<_>) =
        table.as_object().into_iter().flatten().partition(|(_, value)| value.is_object());
    if !values.is_empty() {
        let header: Vec<_> = path.iter().map(|name| quoted(name)).collect();
        lines.push(format!("\n[{}]\n", header.join(".")));
    }
    for (key, value) in values {
        lines.push(print_value(&below(path, key), key, value, origins));
    }
    for (key, inner) in tables {
        print_table(lines, &below(path, key), inner, origins);
    }
}

fn print_value(path: &Path, key: &str, value: &Value, origins: &Origins) -> String {
    let key = quoted(key);
    let origin = origins.get(&dotted(path)).map(|origin| format!(" # from {origin}")).unwrap_or_default();
    match toml_of(value) {
        Some(value) => format!("{key} = {value}{origin}\n"),
        None => format!("# {key} is not set\n"),
    }
}

fn toml_of(value: &Value) -> Option<toml::Value> {
    if value.is_null() { None } else { toml::Value::try_from(value).ok() }
}

fn below(path: &Path, key: &str) -> Path {
    [path.as_slice(), &[key.to_owned()]].concat()
}

/// A key, quoted if TOML requires it.
fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}
