//! Durations as people write them: `15s`, `500ms`, `1h 30m`.

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::{SpanParser, SpanPrinter};
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// Reads a duration such as `15s`, `500ms`, `10m` or `1h 30m`. Hours are the longest unit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    SpanParser::new()
        .parse_unsigned_duration(text)
        .map_err(|_| {
            format!("`{text}` is not a duration such as \"500ms\", \"15s\", \"10m\" or \"1h\"")
        })
}

/// Writes a duration so that [`parse_duration`] reads the same one.
pub fn format_duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

pub(super) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor)
}

/// Writes a duration that may be left out.
pub(super) fn serialize_some<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serialize(duration, serializer),
        None => serializer.serialize_none(),
    }
}

/// A duration that may be left out.
pub(super) fn deserialize_some<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    deserialize(deserializer).map(Some)
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
