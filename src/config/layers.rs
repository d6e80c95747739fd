//! Tables of settings, laid over each other.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// The way to a key, from the outermost table in.
pub(super) type Path = Vec<String>;

/// `a.b.c`.
pub(super) fn dotted(path: &[String]) -> String {
    path.join(".")
}

/// The way to a dotted key of ours.
pub(super) fn path_of(key: &str) -> Path {
    key.split('.').map(str::to_owned).collect()
}

/// The value at `path`.
pub(super) fn get<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(first)?;
    if rest.is_empty() {
        Some(value)
    } else {
        get(value.as_table()?, rest)
    }
}

/// Puts `value` at `path`, making the tables on the way.
pub(super) fn set(table: &mut Table, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        merge_value(table, first, value);
        return;
    }
    let inner = table
        .entry(first.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        set(inner, rest, value);
    }
}

/// Lays `over` over `base`: tables are joined, everything else is replaced.
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

/// Every value that can be judged by itself, with the way to it.
pub(super) fn leaves(table: &Table) -> Vec<(Path, Value)> {
    let mut found = Vec::new();
    collect_leaves(&mut Vec::new(), table, &mut found);
    found
}

fn collect_leaves(path: &mut Path, table: &Table, found: &mut Vec<(Path, Value)>) {
    for (key, value) in table {
        path.push(key.clone());
        match value.as_table() {
            Some(inner) if !inner.is_empty() && !is_judged_whole(path) => {
                collect_leaves(path, inner, found)
            }
            Some(_) | None => found.push((path.clone(), value.clone())),
        }
        path.pop();
    }
}

/// A provider means something only together with its `kind`, a certificate's tenant only with its access.
fn is_judged_whole(path: &[String]) -> bool {
    matches!(path, [section, _] if section == "providers")
        || matches!(path, [section, key, _] if section == "auth" && key == "certificates")
}

/// Dotted key of every value below `json`, set or not, with the value.
pub(super) fn keys(json: &serde_json::Value) -> BTreeMap<String, &serde_json::Value> {
    let mut found = BTreeMap::new();
    collect_keys("", json, &mut found);
    found
}

fn collect_keys<'a>(
    prefix: &str,
    json: &'a serde_json::Value,
    found: &mut BTreeMap<String, &'a serde_json::Value>,
) {
    for (key, value) in json.as_object().into_iter().flatten() {
        let key = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        if value.is_object() {
            collect_keys(&key, value, found);
        } else {
            found.insert(key, value);
        }
    }
}

/// The way to every value of `table` that `json` has no place for. What was read is written with
/// all keys, also those that are not set.
pub(super) fn missing(table: &Table, json: &serde_json::Value) -> Vec<Path> {
    let mut found = Vec::new();
    collect_missing(&mut Vec::new(), table, Some(json), &mut found);
    found
}

fn collect_missing(
    path: &mut Path,
    table: &Table,
    json: Option<&serde_json::Value>,
    found: &mut Vec<Path>,
) {
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
