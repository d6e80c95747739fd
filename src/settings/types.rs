//! The types of settings: how each is read from and written to the file.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize as _, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use super::{
    check::Checks,
    duration,
    secret::{self, SecretUrl},
    section::{Kind, Section, SettingType},
};

/// Implements [`SettingType`] for types with suitable `Serialize` and `Deserialize` implementations.
macro_rules! plain {
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
macro_rules! sections {
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

/// Sections by name.
impl<T: Section + Serialize + DeserializeOwned> SettingType for BTreeMap<String, T> {
    fn kind() -> Kind {
        Kind::Sections(T::declared)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn check(&self, key: &str, checks: &mut Checks) {
        for (name, section) in self {
            section.check_ranges(&format!("{key}.{name}"), checks);
        }
    }
}

/// Implements [`SettingType`] for enums without data, and for `Option`s of them.
macro_rules! choices {
    ($($type:ty),+ $(,)?) => {
        $($crate::settings::plain!(
            $type, $crate::settings::Kind::Choice($crate::settings::variants::<$type>());
            Option<$type>, $crate::settings::Kind::Choice($crate::settings::variants::<$type>());
        );)+
    };
}

pub(crate) use {choices, plain, sections};

plain!(
    bool, Kind::Bool;
    Option<bool>, Kind::Bool;
    u32, Kind::Integer;
    Option<u32>, Kind::Integer;
    u64, Kind::Integer;
    Option<u64>, Kind::Integer;
    usize, Kind::Integer;
    f64, Kind::Number;
    String, Kind::Text;
    Option<String>, Kind::Text;
    PathBuf, Kind::Text;
    Option<PathBuf>, Kind::Text;
    SocketAddr, Kind::Text;
    Option<SocketAddr>, Kind::Text;
    Vec<String>, Kind::Texts;
    BTreeMap<String, String>, Kind::TextsByName;
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
    Option<Duration>, Kind::Duration, duration::serialize_some, duration::deserialize_some;
    Option<SecretString>, Kind::Secret, secret::serialize, secret::deserialize;
    Option<SecretUrl>, Kind::Secret, secret::serialize_url, secret::deserialize_url;
    BTreeMap<String, SecretString>, Kind::Secrets, secret::serialize_map, secret::deserialize_map;
);
