//! Conversions between the model's unsigned and the proto's signed numbers.

use super::{DecodeError, field::Field};

/// Converts a number for the proto; saturates at `i32::MAX`.
pub(crate) fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Reads a stored number; a negative one is an error.
pub(crate) fn unsigned(what: &'static str, number: i32) -> Result<u32, DecodeError> {
    u32::try_from(number).map_err(|_| DecodeError::new(what, format_args!("{number} is negative")))
}

impl Field<i32> for u32 {
    fn to_field(&self) -> i32 {
        signed(*self)
    }

    fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
        unsigned(name, field)
    }
}

impl Field<i32> for u16 {
    fn to_field(&self) -> i32 {
        (*self).into()
    }

    fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
        Self::try_from(field).map_err(|error| DecodeError::new(name, error))
    }
}

/// Saturates at `i64::MAX`.
impl Field<i64> for u64 {
    fn to_field(&self) -> i64 {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }

    fn from_field(name: &'static str, field: i64) -> Result<Self, DecodeError> {
        Self::try_from(field).map_err(|error| DecodeError::new(name, error))
    }
}

/// 0 is `None`.
impl Field<i32> for Option<u32> {
    fn to_field(&self) -> i32 {
        self.map_or(0, signed)
    }

    fn from_field(name: &'static str, field: i32) -> Result<Self, DecodeError> {
        Ok(Some(unsigned(name, field)?).filter(|number| *number != 0))
    }
}

/// 0 is `None`.
impl Field<i64> for Option<i64> {
    fn to_field(&self) -> i64 {
        self.unwrap_or(0)
    }

    fn from_field(_: &'static str, field: i64) -> Result<Self, DecodeError> {
        Ok(Some(field).filter(|number| *number != 0))
    }
}

/// A revision is an etag: its decimal digits.
impl Field<String> for i64 {
    fn to_field(&self) -> String {
        self.to_string()
    }

    fn from_field(name: &'static str, field: String) -> Result<Self, DecodeError> {
        field.parse().map_err(|error| DecodeError::new(name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_saturate_when_encoded_and_are_checked_when_decoded() {
        assert_eq!(signed(7), 7);
        assert_eq!(signed(u32::MAX), i32::MAX);
        assert_eq!(unsigned("size", 7), Ok(7));
        assert_eq!(unsigned("size", -1).unwrap_err().to_string(), "a stored size cannot be read: -1 is negative");
    }

    #[test]
    fn zero_is_decoded_as_none() {
        let to_field = |number: Option<u32>| -> i32 { number.to_field() };
        assert_eq!((to_field(None), to_field(Some(3))), (0, 3));
        let from_field = |number: i32| Option::<u32>::from_field("limit", number);
        assert_eq!((from_field(0), from_field(3)), (Ok(None), Ok(Some(3))));
    }
}
