//! Reads and writes settings with their [`SettingType`], for `#[serde(with = "...")]`.

use serde::{Deserializer, Serializer};

use super::section::SettingType;

/// Writes a setting, with secrets hidden.
pub fn serialize<T: SettingType, S: Serializer>(setting: &T, serializer: S) -> Result<S::Ok, S::Error> {
    setting.write(serializer)
}

/// Reads a setting.
pub fn deserialize<'de, T: SettingType, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(deserializer)
}
