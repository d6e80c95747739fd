//! How values of the model become fields of the proto, and back. The macros write both directions of an enum or a
//! struct from one list, so a new variant or field on either side does not compile until it is in the list.

use std::collections::BTreeMap;

use super::DecodeError;
use crate::model::{BlobId, CallId, CompactionId, MessageId, RequestId, Seq, SessionId, TenantId, TurnId};

/// A value of the model that has the form `P` in the proto.
pub trait Field<P>: Sized {
    /// Converts the value.
    fn to_field(&self) -> P;

    /// Reads a value that was stored or sent. `name` is the name of the field for errors.
    fn from_field(name: &'static str, field: P) -> Result<Self, DecodeError>;
}

/// An enum with the variants of an enum of the proto, which is stored as a number. [`choices`] implements it.
pub trait Choice: Copy {
    /// The enum of the proto.
    type Proto: TryFrom<i32> + Into<i32>;

    /// Converts the value.
    fn to_pb(self) -> Self::Proto;

    /// Reads a value that was stored or sent. Returns `None` for UNSPECIFIED if the enum has no variant for it.
    fn from_pb(name: &'static str, proto: Self::Proto) -> Result<Option<Self>, DecodeError>;
}

/// Reads a stored enum value; an unknown one is an error.
pub(crate) fn known<E: TryFrom<i32>>(what: &'static str, number: i32) -> Result<E, DecodeError> {
    E::try_from(number).map_err(|_| DecodeError::new(what, format_args!("{number} is not a known value")))
}

/// UNSPECIFIED is an error if the enum has no variant for it.
impl<C: Choice> Field<i32> for C {
    fn to_field(&self) -> i32 {
        self.to_pb().into()
    }

    fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
        Option::<Self>::from_field(name, field)?.ok_or_else(|| DecodeError::new(name, "it is not set"))
    }
}

/// `None` is UNSPECIFIED.
impl<C: Choice> Field<i32> for Option<C> {
    fn to_field(&self) -> i32 {
        self.map_or(0, |choice| choice.to_pb().into())
    }

    fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
        C::from_pb(name, known(name, field)?)
    }
}

/// Absent is `None`.
impl<T: Field<P>, P> Field<Option<P>> for Option<T> {
    fn to_field(&self) -> Option<P> {
        self.as_ref().map(T::to_field)
    }

    fn from_field(name: &'static str, field: Option<P>) -> Result<Self, DecodeError> {
        field.map(|field| T::from_field(name, field)).transpose()
    }
}

impl<T: Field<P>, P> Field<Vec<P>> for Vec<T> {
    fn to_field(&self) -> Vec<P> {
        self.iter().map(T::to_field).collect()
    }

    fn from_field(name: &'static str, field: Vec<P>) -> Result<Self, DecodeError> {
        let elements = field.into_iter();
        elements.map(|field| T::from_field(name, field)).collect()
    }
}

impl<T: Field<P>, P> Field<BTreeMap<String, P>> for BTreeMap<String, T> {
    fn to_field(&self) -> BTreeMap<String, P> {
        let entries = self.iter();
        entries.map(|(key, value)| (key.clone(), value.to_field())).collect()
    }

    fn from_field(name: &'static str, field: BTreeMap<String, P>) -> Result<Self, DecodeError> {
        let entries = field.into_iter();
        entries.map(|(key, value)| Ok((key, T::from_field(name, value)?))).collect()
    }
}

/// Types that the model and the proto share.
macro_rules! same {
    ($($same:ty),+) => {
        $(impl Field<Self> for $same {
            fn to_field(&self) -> Self {
                self.clone()
            }

            fn from_field(_: &'static str, field: Self) -> Result<Self, DecodeError> {
                Ok(field)
            }
        })+
    };
}

same! { bool, i32, i64, f64, String }

/// An empty text is `None`.
impl Field<String> for Option<String> {
    fn to_field(&self) -> String {
        self.clone().unwrap_or_default()
    }

    fn from_field(_: &'static str, field: String) -> Result<Self, DecodeError> {
        Ok(Some(field).filter(|text| !text.is_empty()))
    }
}

/// Identifiers are texts; an empty text is `None`.
macro_rules! ids {
    ($($id:ident),+) => {
        $(impl Field<String> for $id {
            fn to_field(&self) -> String {
                self.to_string()
            }

            fn from_field(_: &'static str, field: String) -> Result<Self, DecodeError> {
                Ok(Self::new(field))
            }
        }

        impl Field<String> for Option<$id> {
            fn to_field(&self) -> String {
                self.as_ref().map(ToString::to_string).unwrap_or_default()
            }

            fn from_field(_: &'static str, field: String) -> Result<Self, DecodeError> {
                Ok(Some(field).filter(|id| !id.is_empty()).map($id::new))
            }
        })+
    };
}

ids! { BlobId, CallId, CompactionId, MessageId, RequestId, SessionId, TenantId, TurnId }

impl Field<i64> for Seq {
    fn to_field(&self) -> i64 {
        self.0
    }

    fn from_field(_: &'static str, field: i64) -> Result<Self, DecodeError> {
        Ok(Self(field))
    }
}

/// 0 is `None`.
impl Field<i64> for Option<Seq> {
    fn to_field(&self) -> i64 {
        self.unwrap_or_default().0
    }

    fn from_field(_: &'static str, field: i64) -> Result<Self, DecodeError> {
        Ok(Some(Seq(field)).filter(|seq| seq.0 != 0))
    }
}

/// An optional value in which absent and the default are both `None`. For [`messages`].
pub(crate) mod non_zero {
    use super::{DecodeError, Field};

    pub(crate) fn to_field<T: Field<P>, P>(value: &Option<T>) -> Option<P> {
        value.to_field()
    }

    pub(crate) fn from_field<T: Field<P> + Default + PartialEq, P>(
        name: &'static str,
        field: Option<P>,
    ) -> Result<Option<T>, DecodeError> {
        let value: Option<T> = Field::from_field(name, field)?;
        Ok(value.filter(|value| *value != T::default()))
    }
}

/// A value that is absent in the proto if it is the default. For [`messages`].
pub mod unless_default {
    use super::{DecodeError, Field};

    /// Converts the value. Returns `None` if it is the default.
    pub fn to_field<T: Field<P> + Default + PartialEq, P>(value: &T) -> Option<P> {
        (*value != T::default()).then(|| value.to_field())
    }

    /// Reads the value; absent is the default.
    pub fn from_field<T: Field<P> + Default, P>(name: &'static str, field: Option<P>) -> Result<T, DecodeError> {
        Option::from_field(name, field).map(Option::unwrap_or_default)
    }
}

/// An enum in which numbers of a newer version are read as UNSPECIFIED. For [`messages`].
pub(crate) mod newer_is_unspecified {
    use super::{Choice, DecodeError, Field};

    pub(crate) fn to_field<C: Choice>(choice: &C) -> i32 {
        choice.to_field()
    }

    pub(crate) fn from_field<C: Choice>(name: &'static str, field: i32) -> Result<C, DecodeError> {
        C::from_field(name, C::Proto::try_from(field).map_or(0, Into::into))
    }
}

/// Implements [`Choice`] for enums with the variants of an enum of the proto. After the variants, if it is needed:
///
/// - `Unspecified => Variant`: UNSPECIFIED is read as this variant, which has its own number;
/// - `Unspecified = Variant`: UNSPECIFIED is this variant;
/// - `not Variant, ...`: the values of the proto that the enum does not have; they are errors.
macro_rules! choices {
    (@unspecified $choice:ident) => { None };
    (@unspecified $choice:ident $variant:ident) => { Some($choice::$variant) };
    (@named $proto:ident $variant:ident) => { $crate::pb::$proto::$variant };
    (@named $proto:ident $variant:ident $name:ident) => { $crate::pb::$proto::$name };
    ($($choice:ident = $proto:ident {
        $($variant:ident $(= $name:ident)?),+
        $(; Unspecified => $assumed:ident)?
        $(; Unspecified = $unspecified:ident)?
        $(; not $($other:ident),+)?
        $(,)?
    })+) => {
        $(impl $crate::codec::field::Choice for $choice {
            type Proto = $crate::pb::$proto;

            fn to_pb(self) -> Self::Proto {
                match self {
                    $($choice::$variant => {
                        $crate::codec::field::choices!(@named $proto $variant $($name)?)
                    })+
                    $($choice::$unspecified => $crate::pb::$proto::Unspecified,)?
                }
            }

            fn from_pb(
                _name: &'static str,
                proto: Self::Proto,
            ) -> Result<Option<Self>, $crate::codec::DecodeError> {
                Ok(match proto {
                    $crate::pb::$proto::Unspecified => {
                        $crate::codec::field::choices!(
                            @unspecified $choice $($assumed)? $($unspecified)?
                        )
                    }
                    $($crate::codec::field::choices!(@named $proto $variant $($name)?) => {
                        Some($choice::$variant)
                    })+
                    $($($crate::pb::$proto::$other)|+ => {
                        let why = format!("it must not be {}", proto.as_str_name());
                        return Err($crate::codec::DecodeError::new(_name, why));
                    })?
                })
            }
        })+
    };
}

/// Implements [`Field`] for structs whose fields correspond to those of a message. An absent message is read as an
/// empty one. Each field ends with a comma:
///
/// - `field`: it has the same name in the message;
/// - `field = name`: its name in the message;
/// - `field via way`, `field = name via way`: converted by the functions of a module of [`field`](self);
/// - `field = (name, name)`: converted to several fields of the message;
/// - `_ = name`: a field of the message that is not set, and ignored when it is read;
/// - `_ = name: |it| value`: the same, but set to a value that follows from the others.
macro_rules! messages {
    (@fields $model:ident $proto:ident $fields:tt $groups:tt [$($more:tt)*]
        _ = $name:ident, $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto $fields $groups [$($more)* ($name: |_| Default::default())] $($rest)*
        }
    };
    (@fields $model:ident $proto:ident $fields:tt $groups:tt [$($more:tt)*]
        _ = $name:ident: $value:expr, $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto $fields $groups [$($more)* ($name: $value)] $($rest)*
        }
    };
    (@fields $model:ident $proto:ident [$($fields:tt)*] $groups:tt $more:tt
        $field:ident = $name:ident via $way:ident, $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto [$($fields)* ($field $name $way)] $groups $more $($rest)*
        }
    };
    (@fields $model:ident $proto:ident $fields:tt $groups:tt $more:tt
        $field:ident = $name:ident, $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto $fields $groups $more $field = $name via Field, $($rest)*
        }
    };
    (@fields $model:ident $proto:ident $fields:tt [$($groups:tt)*] $more:tt
        $field:ident = ($($name:ident),+), $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto $fields [$($groups)* ($field $($name)+)] $more $($rest)*
        }
    };
    (@fields $model:ident $proto:ident $fields:tt $groups:tt $more:tt
        $field:ident $(via $way:ident)?, $($rest:tt)*
    ) => {
        $crate::codec::field::messages! {
            @fields $model $proto $fields $groups $more $field = $field $(via $way)?, $($rest)*
        }
    };
    (@fields $model:ident $proto:ident
        [$(($field:ident $name:ident $way:ident))*]
        [$(($group:ident $($member:ident)+))*]
        [$(($more:ident: $value:expr))*]
    ) => {
        impl $crate::codec::field::Field<$crate::pb::$proto> for $model {
            fn to_field(&self) -> $crate::pb::$proto {
                let Self { $($field,)* $($group,)* } = self;
                $(let ($($member),+) = $crate::codec::field::Field::to_field($group);)*
                $crate::pb::$proto {
                    $($name: $crate::codec::field::$way::to_field($field),)*
                    $($($member,)+)*
                    $($more: {
                        let value: fn(&Self) -> _ = $value;
                        value(self)
                    },)*
                }
            }

            fn from_field(
                _: &'static str,
                message: $crate::pb::$proto,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let $crate::pb::$proto { $($name,)* $($($member,)+)* $($more: _,)* } = message;
                Ok(Self {
                    $($field: $crate::codec::field::$way::from_field(stringify!($name), $name)?,)*
                    $($group: $crate::codec::field::Field::from_field(stringify!($group), ($($member),+))?,)*
                })
            }
        }

        impl $crate::codec::field::Field<Option<$crate::pb::$proto>> for $model {
            fn to_field(&self) -> Option<$crate::pb::$proto> {
                Some($crate::codec::field::Field::to_field(self))
            }

            fn from_field(
                name: &'static str,
                message: Option<$crate::pb::$proto>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $crate::codec::field::Field::from_field(name, message.unwrap_or_default())
            }
        }
    };
    ($($model:ident = $proto:ident { $($fields:tt)* })+) => {
        $($crate::codec::field::messages! { @fields $model $proto [] [] [] $($fields)* })+
    };
}

pub(crate) use {choices, messages};

/// The value that is read from the form of a value.
#[cfg(test)]
pub(super) fn round_trip<T: Field<P>, P>(value: &T) -> Result<T, DecodeError> {
    T::from_field("value", value.to_field())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb;

    #[test]
    fn an_unknown_enum_number_is_an_error() {
        assert_eq!(known("role", 2), Ok(pb::Role::User));
        assert!(known::<pb::Role>("role", 99).is_err());
    }
}
