//! Lenient parsing of the JSON that services send: text that is split within a character, numbers
//! that are strings, and strings that are numbers.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, de};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::model::json::replace_lone_surrogates;

#[cfg(test)]
mod tests;

/// A fragment of text as WTF-8. JSON escapes a character beyond U+FFFF as a surrogate pair
/// (`\ud83d\ude00`), and services split text between the two. The result is an unpaired surrogate,
/// which a `String` cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece(Vec<u8>);

impl Piece {
    /// The text of a JSON string, or the JSON text of any other value.
    pub fn of(raw: &RawValue) -> Self {
        serde_json::from_str(raw.get()).unwrap_or_else(|_| Self(raw.get().as_bytes().to_vec()))
    }

    /// Whether the fragment is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends another fragment of the same text.
    pub fn extend(&mut self, more: &Self) {
        self.0.extend_from_slice(&more.0);
    }

    /// Converts the fragment to text, as a complete text.
    pub fn whole(&self) -> Text {
        let mut joiner = Joiner::default();
        let mut text = joiner.join(self);
        joiner.close(&mut text);
        text
    }

    /// Splits at the first surrogate: the bytes before it, the surrogate, and the bytes after it.
    fn split(bytes: &[u8]) -> (&[u8], Option<u16>, &[u8]) {
        let surrogate = |three: &[u8]| three[0] == 0xed && three[1] >= 0xa0;
        match bytes.windows(3).position(surrogate) {
            Some(at) => {
                let high = u16::from(bytes[at + 1] & 0x3f);
                let low = u16::from(bytes[at + 2] & 0x3f);
                (&bytes[..at], Some(0xd000 | high << 6 | low), &bytes[at + 3..])
            }
            None => (bytes, None, &[]),
        }
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl<'de> Deserialize<'de> for Piece {
    /// `serde_json` passes the bytes of a string with its unpaired surrogates.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Piece;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Piece, E> {
                Ok(Piece(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Text that can be stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    pub text: String,
    /// An unpaired surrogate was replaced with U+FFFD.
    pub replaced: bool,
}

/// Joins fragments of a text. A character that is split between two fragments is returned with the
/// second.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Joiner {
    /// A leading surrogate at the end of the last fragment.
    half: Option<u16>,
}

impl Joiner {
    /// The text that a fragment adds.
    pub fn join(&mut self, piece: &Piece) -> Text {
        let mut joined = Text::default();
        let mut rest = &piece.0[..];
        while !rest.is_empty() {
            let (plain, surrogate, after) = Piece::split(rest);
            if !plain.is_empty() {
                self.close(&mut joined);
                joined.text.push_str(&String::from_utf8_lossy(plain));
            }
            match (surrogate, self.half) {
                (Some(low @ 0xdc00..), Some(high)) => {
                    self.half = None;
                    joined.text.extend(char::decode_utf16([high, low]).flatten());
                }
                (Some(0xdc00..), None) => replace(&mut joined),
                (Some(high), _) => {
                    self.close(&mut joined);
                    self.half = Some(high);
                }
                (None, _) => {}
            }
            rest = after;
        }
        joined
    }

    /// Ends the text. Returns the replacement of a pending leading surrogate, if there is one.
    pub fn rest(&mut self) -> Text {
        let mut text = Text::default();
        self.close(&mut text);
        text
    }

    /// Ends the text. A pending leading surrogate is replaced.
    fn close(&mut self, text: &mut Text) {
        if self.half.take().is_some() {
            replace(text);
        }
    }
}

fn replace(text: &mut Text) {
    text.text.push(char::REPLACEMENT_CHARACTER);
    text.replaced = true;
}

/// A string, such as an id. A number is kept as written. Any other value is read as empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LenientString(pub String);

impl LenientString {
    /// The string. Returns `None` if it is empty.
    pub fn some(self) -> Option<String> {
        Some(self.0).filter(|word| !word.is_empty())
    }

    /// Replaces `kept`, unless the string is empty.
    pub fn clone_into(&self, kept: &mut String) {
        if !self.0.is_empty() {
            self.0.clone_into(kept);
        }
    }

    /// Replaces `kept` if it is empty.
    pub fn keep_in(self, kept: &mut String) {
        if kept.is_empty() {
            *kept = self.0;
        }
    }
}

impl<'de> Deserialize<'de> for LenientString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(match raw.get().as_bytes() {
            // PostgreSQL cannot store NUL.
            [b'"', ..] => Piece::of(raw).whole().text.replace('\0', "\u{fffd}"),
            [b'-' | b'0'..=b'9', ..] => raw.get().to_owned(),
            _ => String::new(),
        }))
    }
}

/// An integer, or a string that contains one. Any other value is read as `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Number(pub Option<i64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let number = float(raw).filter(|number| number.fract() == 0.0);
        // Saturates at both ends.
        Ok(Self(number.map(|number| number as i64)))
    }
}

/// A non-negative count, possibly written as a float or a string. Floats are rounded. Returns
/// `None` for other values.
pub fn count(raw: &RawValue) -> Option<u64> {
    let whole = || digits(raw).parse::<u64>().ok();
    // Saturates.
    whole().or_else(|| float(raw).filter(|number| *number >= 0.0).map(|number| number.round() as u64))
}

/// Like [`count`], for a parsed value.
pub fn amount(value: &Value) -> Option<u64> {
    count(&to_raw_value(value).ok()?)
}

/// The members of an object as JSON text. Empty if the text is not an object.
pub fn members(json: &str) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_str(json).unwrap_or_default()
}

/// Parses a value. A value of another type is read as the default.
pub fn read<'a, T: Deserialize<'a> + Default>(raw: &'a RawValue) -> T {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Reads a value as a [`LenientString`].
pub fn string(raw: &RawValue) -> String {
    read::<LenientString>(raw).0
}

/// A string member of an object. Empty if there is none.
pub fn member(json: &str, name: &str) -> String {
    let members = members(json);
    members.get(name).map(|raw| string(raw)).unwrap_or_default()
}

fn float(raw: &RawValue) -> Option<f64> {
    let number = digits(raw).parse::<f64>().ok();
    number.filter(|number| number.is_finite())
}

fn digits(raw: &RawValue) -> &str {
    raw.get().trim_matches('"').trim()
}

/// Parses a value after replacing unpaired surrogates if necessary. Returns `None` if it is not
/// valid JSON.
pub fn value(json: &str) -> Option<Value> {
    serde_json::from_str(json).or_else(|_| serde_json::from_str(&replace_lone_surrogates(json))).ok()
}
