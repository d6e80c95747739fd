//! Declares the sections of the configuration file. [`settings!`] declares each setting once, with its type, default,
//! range, unit and documentation. The struct, its defaults, the range checks, the reference in docs/settings.md and the
//! schema of the Helm chart are all generated from that declaration.

mod check;
mod duration;
mod range;
mod secret;
mod section;
mod types;
pub mod value;
mod variants;

pub use check::Checks;
pub use duration::{format_duration, parse_duration};
pub use range::Ranged;
pub use secret::{SecretUrl, redact_url};
pub use section::{AllowedRange, ByName, Declared, Entry, Kind, Nested, Section, SettingType, key};
pub use types::{choices, plain, sections};
pub use variants::variants;

/// Declares a section: `field: Type = default, in range, "unit";`. Range and unit are optional. The type must implement
/// [`SettingType`], and also [`Ranged`] if the setting has a range.
#[macro_export]
#[doc(hidden)]
macro_rules! declare_settings {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derived:path),+)])?
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($serde:ident)])?
                $field:ident: $type:ty = $default:expr $(, in $range:expr $(, $unit:literal)?)?;
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize $(, $($derived),+)?)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[doc = $doc])*
                $(#[serde($serde)])?
                #[serde(with = "contextd_core::settings::value")]
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::settings::Section for $name {
            fn declared() -> $crate::settings::Declared {
                let defaults = Self::default();
                let entries = vec![$(
                    $crate::settings::Entry::new(stringify!($field), &[$($doc),*], &defaults.$field)
                        $(.within::<$type>(&($range), concat!($($unit)?)))?
                        $(.with(stringify!($serde)))?,
                )*];
                $crate::settings::Declared::new(&[$($about),*], entries)
            }

            fn check_ranges(&self, prefix: &str, checks: &mut $crate::settings::Checks) {
                $(
                    let key = $crate::settings::key(prefix, stringify!($field), concat!($(stringify!($serde))?));
                    $(checks.range(&key, &self.$field, &($range), concat!($($unit)?));)?
                    $crate::settings::SettingType::check(&self.$field, &key, checks);
                )*
            }
        }

        $crate::settings::sections!($name);
    };
}

pub use declare_settings as settings;
