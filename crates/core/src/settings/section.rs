//! Describes sections and their settings: the traits that a declaration implements, and the description of each
//! setting.

use std::ops::RangeInclusive;

use serde::{Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;

use super::{check::Checks, range::Ranged};

/// The attribute of serde that makes the settings of a section settings of the outer one.
const FLATTEN: &str = "flatten";

/// A section of the configuration file.
pub trait Section {
    /// The declaration of the section.
    fn declared() -> Declared;

    /// Checks that each setting is in its range, including those of nested sections. `prefix` is the section's key.
    fn check_ranges(&self, prefix: &str, checks: &mut Checks);
}

/// The declaration of a section.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The documentation, with its lines joined.
    pub about: String,
    /// The settings, in the order of the declaration.
    pub entries: Vec<Entry>,
}

/// The declaration of a setting.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key within the section.
    pub name: &'static str,
    /// The documentation, with its lines joined.
    pub doc: String,
    pub kind: Kind,
    /// The default as in the file. Null if the setting is not set by default.
    pub default: Value,
    /// The range. `None` if the setting has none.
    pub allowed: Option<AllowedRange>,
    /// The setting is a section whose keys are keys of the outer section.
    pub is_flattened: bool,
}

/// The range of a setting. The bounds are inclusive, and written as in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowedRange {
    pub min: Value,
    pub max: Value,
    /// The unit of numbers. Empty for durations, whose values contain their units.
    pub unit: &'static str,
}

impl Declared {
    /// A section with these lines of documentation.
    pub fn new(about: &[&str], entries: Vec<Entry>) -> Self {
        let about = joined(about);
        Self { about, entries }
    }

    /// The declaration of the setting with this dotted key, in which sections that exist once per name have a name.
    pub fn find(&self, key: &str) -> Option<Entry> {
        let (name, rest) = match key.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (key, None),
        };
        self.entries.iter().find_map(|entry| {
            let nested = entry.kind.sections();
            if entry.is_flattened {
                return nested.iter().find_map(|nested| nested.section.find(key));
            }
            if entry.name != name {
                return None;
            }
            let Some(rest) = rest else {
                return Some(entry.clone());
            };
            nested.iter().find_map(|nested| {
                let rest = match nested.is_named {
                    true => rest.split_once('.')?.1,
                    false => rest,
                };
                nested.section.find(rest)
            })
        })
    }
}

impl Entry {
    /// A setting of the type `T` with these lines of documentation.
    pub fn new<T: SettingType>(name: &'static str, doc: &[&str], default: &T) -> Self {
        Self {
            name,
            doc: joined(doc),
            kind: T::kind(),
            default: default.write(serde_json::value::Serializer).expect("settings are tables of plain values"),
            allowed: None,
            is_flattened: false,
        }
    }

    /// Adds the range. `unit` is the unit of numbers.
    #[must_use]
    pub fn within<T: Ranged>(self, range: &RangeInclusive<T::Bound>, unit: &'static str) -> Self {
        let allowed = AllowedRange { min: T::written(range.start()), max: T::written(range.end()), unit };
        Self { allowed: Some(allowed), ..self }
    }

    /// Makes the settings of this section settings of the outer one, if this is serde's attribute for that.
    #[must_use]
    pub fn with(self, attribute: &str) -> Self {
        Self { is_flattened: attribute == FLATTEN, ..self }
    }

    /// The key of this setting in a section with the key `prefix`.
    pub fn key(&self, prefix: &str) -> String {
        let attribute = if self.is_flattened { FLATTEN } else { "" };
        key(prefix, self.name, attribute)
    }
}

/// The key of a setting in a section with the key `prefix`. A flattened section has the key of the outer section.
pub fn key(prefix: &str, name: &str, attribute: &str) -> String {
    match prefix {
        prefix if attribute == FLATTEN => prefix.to_owned(),
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    }
}

/// Joins the lines of a documentation comment.
fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The kind of values that a setting has, for the reference and the JSON schema.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A string.
    Text,
    /// A duration such as `15s`.
    Duration,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A string that is never shown.
    Secret,
    /// Secrets by name.
    Secrets,
    /// A list of strings.
    Texts,
    /// Strings by name.
    TextsByName,
    /// A section.
    Section(fn() -> Declared),
    /// Sections by name.
    Sections(fn() -> Declared),
    /// Sections by name, each of one of several kinds, with the name of each kind.
    SectionsByKind(fn() -> Vec<(&'static str, Declared)>),
    /// Tables whose keys are not declared here.
    Tables,
}

/// A section within another one.
#[derive(Debug, Clone)]
pub struct Nested {
    /// There is one per name.
    pub is_named: bool,
    /// The value of its setting `kind`. Empty if it has none.
    pub kind: &'static str,
    pub section: Declared,
}

impl Kind {
    /// The sections within it. Empty for other values.
    pub fn sections(self) -> Vec<Nested> {
        let nested = |is_named, kind, section| Nested { is_named, kind, section };
        match self {
            Self::Section(of) => vec![nested(false, "", of())],
            Self::Sections(of) => vec![nested(true, "", of())],
            Self::SectionsByKind(of) => {
                let kinds = of().into_iter();
                kinds.map(|(kind, section)| nested(true, kind, section)).collect()
            }
            Self::Bool
            | Self::Integer
            | Self::Number
            | Self::Text
            | Self::Duration
            | Self::Choice(_)
            | Self::Secret
            | Self::Secrets
            | Self::Texts
            | Self::TextsByName
            | Self::Tables => Vec::new(),
        }
    }
}

/// A type that a setting can have.
pub trait SettingType: Sized {
    /// The kind of its values.
    fn kind() -> Kind;

    /// Writes the value as in the file, with secrets hidden.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Reads the value as written in the file.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;

    /// Checks the ranges of nested settings. `key` is the key of this setting.
    fn check(&self, key: &str, checks: &mut Checks) {
        let _ = (key, checks);
    }
}

/// A type of values that a setting has by name.
pub trait ByName: Serialize + DeserializeOwned {
    /// The kind of a setting with such values.
    fn kind_by_name() -> Kind;

    /// Checks the ranges of nested settings. `key` is the key of this value.
    fn check_value(&self, key: &str, checks: &mut Checks) {
        let _ = (key, checks);
    }
}
