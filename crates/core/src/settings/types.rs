//! The types of settings: how each is read from and written to the file.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize as _, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use super::{
    check::Checks,
    duration,
    secret::{self, SecretUrl},
    section::{ByName, Kind, Section, SettingType},
};

/// Implements [`SettingType`] for types with suitable `Serialize` and `Deserialize` implementations.
#[macro_export]
#[doc(hidden)]
macro_rules! plain_setting {
    ($($type:ty, $kind:expr);+ $(;)?) => {
        $(impl $crate::settings::SettingType for $type {
            fn kind() -> $crate::settings::Kind {
                $kind
            }

            fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(self, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        })+
    };
}

/// Implements [`SettingType`] for sections.
#[macro_export]
#[doc(hidden)]
macro_rules! section_setting {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::settings::SettingType for $type {
            fn kind() -> $crate::settings::Kind {
                $crate::settings::Kind::Section(<$type as $crate::settings::Section>::declared)
            }

            fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(self, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }

            fn check(&self, key: &str, checks: &mut $crate::settings::Checks) {
                $crate::settings::Section::check_ranges(self, key, checks);
            }
        })+
    };
}

/// Values by name.
impl<T: ByName> SettingType for BTreeMap<String, T> {
    fn kind() -> Kind {
        T::kind_by_name()
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn check(&self, key: &str, checks: &mut Checks) {
        for (name, value) in self {
            value.check_value(&format!("{key}.{name}"), checks);
        }
    }
}

impl<T: Section + Serialize + DeserializeOwned> ByName for T {
    fn kind_by_name() -> Kind {
        Kind::Sections(T::declared)
    }

    fn check_value(&self, key: &str, checks: &mut Checks) {
        self.check_ranges(key, checks);
    }
}

impl ByName for String {
    fn kind_by_name() -> Kind {
        Kind::TextsByName
    }
}

/// Implements [`SettingType`] for enums without data.
#[macro_export]
#[doc(hidden)]
macro_rules! choice_setting {
    ($($type:ty),+ $(,)?) => {
        $($crate::settings::plain!(
            $type, $crate::settings::Kind::Choice($crate::settings::variants::<$type>())
        );)+
    };
}

pub use {choice_setting as choices, plain_setting as plain, section_setting as sections};

/// A setting that may be left out.
impl<T: SettingType> SettingType for Option<T> {
    fn kind() -> Kind {
        T::kind()
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.write(serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a setting that is present.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Some)
    }

    fn check(&self, key: &str, checks: &mut Checks) {
        if let Some(value) = self {
            value.check(key, checks);
        }
    }
}

plain!(
    bool, Kind::Bool;
    u32, Kind::Integer;
    u64, Kind::Integer;
    usize, Kind::Integer;
    f64, Kind::Number;
    String, Kind::Text;
    PathBuf, Kind::Text;
    SocketAddr, Kind::Text;
    Vec<String>, Kind::Texts;
);

/// Implements [`SettingType`] for types with separate functions to write and read them.
macro_rules! by {
    ($($type:ty, $kind:expr, $write:path, $read:path);+ $(;)?) => {
        $(impl SettingType for $type {
            fn kind() -> Kind {
                $kind
            }

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $write(self, serializer)
            }

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $read(deserializer)
            }
        })+
    };
}

by!(
    Duration, Kind::Duration, duration::serialize, duration::deserialize;
    SecretString, Kind::Secret, secret::serialize, secret::deserialize;
    SecretUrl, Kind::Secret, secret::serialize_url, secret::deserialize_url;
    BTreeMap<String, SecretString>, Kind::Secrets, secret::serialize_map, secret::deserialize_map;
);
