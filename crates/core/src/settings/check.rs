//! Collects the problems with the values of the settings, so that all are reported at once.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::range::Ranged;

/// The problems found so far, as key and message.
#[derive(Debug, Default)]
pub struct Checks(Vec<(String, String)>);

impl Checks {
    /// The problems, in the order in which they were found.
    pub fn into_problems(self) -> Vec<(String, String)> {
        self.0
    }

    /// Adds a problem.
    pub fn fail(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push((key.into(), message.into()));
    }

    /// Adds a problem unless a condition holds.
    pub fn require(&mut self, holds: bool, key: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(key, message());
        }
    }

    /// Adds a problem if a value is outside of its range. `unit` is the unit of numbers; it is empty for durations,
    /// which are written with their units.
    pub fn range<T: Ranged>(&mut self, key: &str, value: &T, range: &RangeInclusive<T::Bound>, unit: &str) {
        let Some(value) = value.outside(range) else {
            return;
        };
        let [value, least, most] = [value, T::written(range.start()), T::written(range.end())].map(shown);
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        self.fail(key, format!("{value} is not between {least} and {most}{unit}"));
    }
}

fn shown(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
