//! Merges tables of settings, and reads and writes values in them by path.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// The path to a key, starting at the outermost table.
pub(super) type Path = Vec<String>;

/// A path as a dotted key, such as `a.b.c`.
pub(super) fn dotted(path: &[String]) -> String {
    path.join(".")
}

/// The path of a dotted key. No part of the key may contain a dot.
pub(super) fn path_of(key: &str) -> Path {
    key.split('.').map(str::to_owned).collect()
}

/// The value at `path`. Returns `None` if there is none, or if `path` is empty.
pub(super) fn get<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(first)?;
    if rest.is_empty() { Some(value) } else { get(value.as_table()?, rest) }
}

/// Sets the value at `path`. Creates missing tables, and replaces values on the path that are not tables.
pub(super) fn set(table: &mut Table, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        merge_value(table, first, value);
        return;
    }
    let inner = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        set(inner, rest, value);
    }
}

/// Merges `over` into `base`: tables are merged recursively, all other values are replaced.
pub(super) fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        merge_value(base, &key, value);
    }
}

fn merge_value(base: &mut Table, key: &str, value: Value) {
    match (base.get_mut(key), value) {
        (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
        (_, value) => {
            base.insert(key.to_owned(), value);
        }
    }
}

/// The values that can be checked independently of each other, with their paths.
pub(super) fn leaves(table: &Table) -> Vec<(Path, Value)> {
    let mut found = Vec::new();
    collect_leaves(&mut Vec::new(), table, &mut found);
    found
}

fn collect_leaves(path: &mut Path, table: &Table, found: &mut Vec<(Path, Value)>) {
    for (key, value) in table {
        path.push(key.clone());
        match value.as_table() {
            Some(inner) if !inner.is_empty() && !is_checked_as_whole(path) => collect_leaves(path, inner, found),
            Some(_) | None => found.push((path.clone(), value.clone())),
        }
        path.pop();
    }
}

/// Whether a table is checked as a whole. A provider can only be read together with its `kind`, and a certificate's
/// tenant only together with its access.
fn is_checked_as_whole(path: &[String]) -> bool {
    matches!(path, [section, _] if section == "providers")
        || matches!(path, [section, key, _] if section == "auth" && key == "certificates")
}

/// All values below `json` by dotted key, including null ones.
pub(super) fn keys(json: &serde_json::Value) -> BTreeMap<String, &serde_json::Value> {
    let mut found = BTreeMap::new();
    collect_keys("", json, &mut found);
    found
}

fn collect_keys<'a>(prefix: &str, json: &'a serde_json::Value, found: &mut BTreeMap<String, &'a serde_json::Value>) {
    for (key, value) in json.as_object().into_iter().flatten() {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        if value.is_object() {
            collect_keys(&key, value, found);
        } else {
            found.insert(key, value);
        }
    }
}

/// The paths of the values of `table` whose keys do not exist in `json`. `json` must be the serialized configuration,
/// which has all keys, including those that are not set.
pub(super) fn missing(table: &Table, json: &serde_json::Value) -> Vec<Path> {
    let mut found = Vec::new();
    collect_missing(&mut Vec::new(), table, Some(json), &mut found);
    found
}

fn collect_missing(path: &mut Path, table: &Table, json: Option<&serde_json::Value>, found: &mut Vec<Path>) {
    for (key, value) in table {
        path.push(key.clone());
        let known = json.and_then(|json| json.get(key));
        match value.as_table() {
            Some(inner) if !inner.is_empty() => collect_missing(path, inner, known, found),
            Some(_) | None if known.is_none() => found.push(path.clone()),
            Some(_) | None => {}
        }
        path.pop();
    }
}
