//! Conversions between the model's unsigned and the proto's signed numbers.

use super::DecodeError;

/// Converts a number for the proto; saturates at `i32::MAX`.
pub(crate) fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Reads a stored number; a negative one is an error.
pub(crate) fn unsigned(what: &'static str, number: i32) -> Result<u32, DecodeError> {
    u32::try_from(number).map_err(|_| DecodeError::new(what, format_args!("{number} is negative")))
}

/// Converts an optional number for the proto; `None` becomes 0.
pub(crate) fn or_zero(number: Option<u32>) -> i32 {
    number.map_or(0, signed)
}

/// Reads a stored number in which 0 means `None`.
pub(crate) fn non_zero(what: &'static str, number: i32) -> Result<Option<u32>, DecodeError> {
    Ok(Some(unsigned(what, number)?).filter(|number| *number != 0))
}

/// Reads a stored enum value; an unknown one is an error.
pub(crate) fn known<E: TryFrom<i32>>(what: &'static str, number: i32) -> Result<E, DecodeError> {
    E::try_from(number)
        .map_err(|_| DecodeError::new(what, format_args!("{number} is not a known value")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb;

    #[test]
    fn numbers_saturate_when_encoded_and_are_checked_when_decoded() {
        assert_eq!(signed(7), 7);
        assert_eq!(signed(u32::MAX), i32::MAX);
        assert_eq!(unsigned("size", 7), Ok(7));
        assert_eq!(
            unsigned("size", -1).unwrap_err().to_string(),
            "a stored size cannot be read: -1 is negative"
        );
    }

    #[test]
    fn zero_is_decoded_as_none() {
        assert_eq!((or_zero(None), or_zero(Some(3))), (0, 3));
        assert_eq!(
            (non_zero("limit", 0), non_zero("limit", 3)),
            (Ok(None), Ok(Some(3)))
        );
    }

    #[test]
    fn an_unknown_enum_number_is_an_error() {
        assert_eq!(known("role", 2), Ok(pb::Role::User));
        assert!(known::<pb::Role>("role", 99).is_err());
    }
}
