//! The values that were set in the file, in the environment or on the command line, and the origin of each.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::error::Origin;
use super::layers::{self, dotted, path_of};
use super::setting::Setting;

/// The origins of values, by dotted key.
pub type Origins = BTreeMap<String, Origin>;

/// The values that were set, with the origin of each.
#[derive(Default)]
pub(super) struct ExplicitValues {
    pub(super) values: Table,
    pub(super) origins: Origins,
}

impl ExplicitValues {
    pub(super) fn add_file(&mut self, table: Table, path: &Path) {
        for key in layers::leaves(&table).iter().flat_map(|(path, value)| keys_below(path, value)) {
            self.origins.insert(key, Origin::File(path.to_owned()));
        }
        layers::merge(&mut self.values, table);
    }

    pub(super) fn add_text(&mut self, known: &Table, setting: &Setting, text: &str, origin: Origin) {
        let path = path_of(setting.key);
        let value = typed(text, layers::get(known, &path));
        layers::set(&mut self.values, &path, value);
        self.origins.insert(setting.key.to_owned(), origin);
    }

    /// The origin of a key, or of the first key below it. Returns `None` if neither is set.
    pub(super) fn origin(&self, key: &str) -> Option<Origin> {
        let below = format!("{key}.");
        let found = self.origins.iter().find(|(set, _)| *set == key || set.starts_with(&below));
        found.map(|(_, origin)| origin.clone())
    }
}

fn keys_below(path: &[String], value: &Value) -> Vec<String> {
    let Some(table) = value.as_table().filter(|table| !table.is_empty()) else {
        return vec![dotted(path)];
    };
    let below = |key: &String| [path, std::slice::from_ref(key)].concat();
    table.iter().flat_map(|(key, value)| keys_below(&below(key), value)).collect()
}

/// Parses the text of a variable or flag as the type of the setting's default. Text that cannot be parsed stays text,
/// so that it is reported together with all other problems.
fn typed(text: &str, default: Option<&Value>) -> Value {
    let typed = match default {
        Some(Value::Boolean(_)) => text.parse().ok().map(Value::Boolean),
        Some(Value::Integer(_)) => text.parse().ok().map(Value::Integer),
        Some(Value::String(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_)) | None => {
            None
        }
    };
    typed.unwrap_or_else(|| Value::String(text.to_owned()))
}
