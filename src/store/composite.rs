//! Decodes rows inside a column: the result of `array(select row(...))`.

use tokio_postgres::types::{FromSql, Type};

use super::Error;

/// A row inside a column, as `row(...)` creates it: the type and value of each field.
#[derive(Debug)]
pub(super) struct Composite<'a>(Vec<(Type, Option<&'a [u8]>)>);

/// An array of rows inside a column, with one dimension or empty.
#[derive(Debug)]
pub(super) struct Composites<'a>(pub(super) Vec<Composite<'a>>);

impl<'a> FromSql<'a> for Composites<'a> {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let dimensions = number(&mut raw)?;
        let _has_nulls = number(&mut raw)?;
        let _type = number(&mut raw)?;
        let length = match dimensions {
            0 => 0, // empty
            1 => {
                let length = number(&mut raw)?;
                let _first = number(&mut raw)?;
                length
            }
            _ => return Err("an array has more than one dimension".into()),
        };
        let row = |_| composite(field(&mut raw)?.ok_or("an array element is null")?);
        Ok(Self((0..length).map(row).collect::<Result<_, _>>()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::RECORD_ARRAY
    }
}

fn composite(mut raw: &[u8]) -> Result<Composite<'_>, &'static str> {
    let mut fields = Vec::new();
    for _ in 0..number(&mut raw)? {
        let of = Type::from_oid(number(&mut raw)?.cast_unsigned()).ok_or("a field has an unknown type")?;
        fields.push((of, field(&mut raw)?));
    }
    Ok(Composite(fields))
}

/// Reads a four-byte number.
fn number(raw: &mut &[u8]) -> Result<i32, &'static str> {
    let (bytes, rest) = raw.split_first_chunk().ok_or("unexpected end of data")?;
    *raw = rest;
    Ok(i32::from_be_bytes(*bytes))
}

/// Reads a length and that many bytes. A negative length means null.
fn field<'a>(raw: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    match usize::try_from(number(raw)?) {
        Ok(length) => raw.split_off(..length).ok_or("unexpected end of data").map(Some),
        Err(_) => Ok(None),
    }
}

impl<'a> Composite<'a> {
    /// Decodes a field. Fails if the field is missing or has another type.
    pub(super) fn get<T: FromSql<'a>>(&self, place: usize) -> Result<T, Error> {
        let (of, field) =
            self.0.get(place).ok_or_else(|| Error::Corrupt(format!("composite field {place} is missing")))?;
        if !T::accepts(of) {
            return Err(Error::Corrupt(format!("composite field {place} has the unexpected type {of}")));
        }
        T::from_sql_nullable(of, *field).map_err(|error| Error::Corrupt(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The array of (7, 'gpt', null), as PostgreSQL sends it.
    fn sent() -> Vec<u8> {
        let field = |of: &Type, value: Option<&[u8]>| {
            let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
            [&of.oid().to_be_bytes(), &length.to_be_bytes(), value.unwrap_or_default()].concat()
        };
        let fields = [field(&Type::INT2, Some(&[0, 7])), field(&Type::TEXT, Some(b"gpt")), field(&Type::INT8, None)];
        let row = [3_i32.to_be_bytes().as_slice(), &fields.concat()].concat();
        let head = [1, 0, Type::RECORD.oid().cast_signed(), 1, 1, i32::try_from(row.len()).unwrap()];
        [head.map(i32::to_be_bytes).as_flattened(), &row].concat()
    }

    fn read(raw: &[u8]) -> Option<Composites<'_>> {
        Composites::from_sql(&Type::RECORD_ARRAY, raw).ok()
    }

    #[test]
    fn fields_are_read_by_their_place_and_only_as_what_they_are() {
        let sent = sent();
        let Composites(rows) = read(&sent).unwrap();
        let row = &rows[0];
        assert_eq!((row.get::<i16>(0).unwrap(), row.get::<&str>(1).unwrap()), (7, "gpt"));
        assert_eq!(row.get::<Option<i64>>(2).unwrap(), None);
        assert!(row.get::<i64>(2).is_err(), "a null is no number");
        assert!(row.get::<i64>(0).is_err(), "nor is a small number a large one");
        assert!(row.get::<i16>(3).is_err(), "there are three");
    }

    #[test]
    fn an_array_without_rows_is_empty_and_one_of_arrays_is_refused() {
        assert!(read(&[0; 12]).unwrap().0.is_empty());
        let mut square = sent();
        square[3] = 2;
        assert!(read(&square).is_none());
    }

    proptest! {
        #[test]
        fn a_truncated_composite_is_refused(cut in 1_usize..50) {
            let sent = sent();
            prop_assume!(cut < sent.len());
            prop_assert!(read(&sent[..sent.len() - cut]).is_none());
        }

        #[test]
        fn decoding_composites_never_panics_on_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(read(&bytes));
        }
    }
}
