//! Declaration of policy settings: one list of fields with defaults generates the policy type and the type of a
//! session's overrides.

/// A policy value that a session can override.
pub trait Changeable {
    /// The override. The default value changes nothing.
    type Change;

    /// The value with an override applied.
    #[must_use]
    fn with(&self, change: &Self::Change) -> Self;
}

/// A list that is not empty replaces the policy's list as a whole.
impl Changeable for Vec<String> {
    type Change = Self;

    fn with(&self, change: &Self) -> Self {
        if change.is_empty() { self } else { change }.clone()
    }
}

/// A value that the policy leaves unset can be set by a session.
impl<T: Clone> Changeable for Option<T> {
    type Change = Self;

    fn with(&self, change: &Self) -> Self {
        change.as_ref().or(self.as_ref()).cloned()
    }
}

/// Implements [`Changeable`] for values that a session either sets or leaves unchanged.
macro_rules! set_or_kept {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::model::policy::Changeable for $type {
            type Change = Option<Self>;

            fn with(&self, change: &Option<Self>) -> Self {
                change.as_ref().unwrap_or(self).clone()
            }
        })+
    };
}

/// Declares a policy, its default, and the type of a session's overrides. To add a setting, add one line here, one in
/// the codec's list of the proto's fields, and its bounds where requests and the configuration are validated.
macro_rules! policy {
    (
        $(#[doc = $policy_doc:literal])*
        $policy:ident,
        $(#[$changes_doc:meta])*
        $changes:ident {
            $($(#[doc = $doc:literal])* $name:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[doc = $policy_doc])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $policy {
            $($(#[doc = $doc])* pub $name: $type,)*
        }

        $(#[$changes_doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $changes {
            $($(#[doc = $doc])* pub $name: <$type as $crate::model::policy::Changeable>::Change,)*
        }

        impl Default for $policy {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl $crate::settings::Section for $policy {
            fn declared() -> $crate::settings::Declared {
                let defaults = Self::default();
                let entries = vec![$(
                    $crate::settings::Entry::new(stringify!($name), &[$($doc),*], &defaults.$name),
                )*];
                $crate::settings::Declared::new(&[$($policy_doc),*], entries)
            }

            fn check_ranges(&self, _: &str, _: &mut $crate::settings::Checks) {}
        }

        $crate::settings::sections!($policy);

        impl $crate::model::policy::Changeable for $policy {
            type Change = $changes;

            fn with(&self, changes: &$changes) -> Self {
                Self { $($name: self.$name.with(&changes.$name),)* }
            }
        }
    };
}

pub(super) use {policy, set_or_kept};

set_or_kept!(bool, u32, String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_replaces_a_value_and_no_change_keeps_it() {
        assert_eq!((1_u32.with(&Some(2)), 1_u32.with(&None)), (2, 1));
        assert_eq!((Some(1).with(&Some(2)), Some(1).with(&None)), (Some(2), Some(1)));
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let own: Vec<String> = list(&["a", "b"]);
        assert_eq!(own.with(&list(&["c"])), list(&["c"]));
        assert_eq!(own.with(&list(&[])), own);
    }
}
