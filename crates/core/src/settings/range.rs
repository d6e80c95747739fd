//! The types of settings that can have a range.

use std::{ops::RangeInclusive, time::Duration};

use serde_json::Value;

use super::duration::format_duration;

/// A type whose values are ordered, so that its settings can have a range.
pub trait Ranged {
    /// The type of the bounds of a range.
    type Bound;

    /// The value, written as in the file. Returns `None` if it is in the range.
    fn outside(&self, range: &RangeInclusive<Self::Bound>) -> Option<Value>;

    /// A bound of a range, written as in the file.
    fn written(bound: &Self::Bound) -> Value;
}

macro_rules! numbers {
    ($($type:ty),+) => {
        $(impl Ranged for $type {
            type Bound = Self;

            fn outside(&self, range: &RangeInclusive<Self>) -> Option<Value> {
                (!range.contains(self)).then(|| Value::from(*self))
            }

            fn written(bound: &Self) -> Value {
                Value::from(*bound)
            }
        })+
    };
}

numbers!(u32, u64, usize, f64);

impl Ranged for Duration {
    type Bound = Self;

    fn outside(&self, range: &RangeInclusive<Self>) -> Option<Value> {
        (!range.contains(self)).then(|| Self::written(self))
    }

    fn written(bound: &Self) -> Value {
        Value::from(format_duration(*bound))
    }
}

/// A setting that is not set is in every range.
impl<T: Ranged> Ranged for Option<T> {
    type Bound = T::Bound;

    fn outside(&self, range: &RangeInclusive<Self::Bound>) -> Option<Value> {
        self.as_ref().and_then(|value| value.outside(range))
    }

    fn written(bound: &Self::Bound) -> Value {
        T::written(bound)
    }
}
