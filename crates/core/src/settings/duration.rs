//! Reads and writes durations such as `15s`, `500ms` or `1h 30m`.

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::{SpanParser, SpanPrinter};
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// Parses a duration such as `15s`, `500ms`, `10m` or `1h 30m`. The longest unit is the hour. The error is a message
/// that quotes `text`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    SpanParser::new()
        .parse_unsigned_duration(text)
        .map_err(|_| format!("`{text}` is not a duration such as \"500ms\", \"15s\", \"10m\" or \"1h\""))
}

/// Formats a duration. [`parse_duration`] reads the same duration from it.
pub fn format_duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor)
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"15s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse_duration(text).map_err(E::custom)
    }
}
