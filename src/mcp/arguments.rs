//! The arguments of a call in a form that the client can send. A model may produce any JSON object; the client's
//! numbers have 64 bits, and its nesting depth is limited.

use serde_json::{Map, Value};

use crate::model::json::replace_lone_surrogates;

/// Parses the text as an object and replaces lone surrogates. The error says why the arguments cannot be sent.
pub(super) fn object(arguments: &str) -> Result<Map<String, Value>, String> {
    if let Some(number) = too_long(arguments) {
        return Err(format!("its arguments cannot be sent: the integer {number} has more than 64 bits"));
    }
    serde_json::from_str(&replace_lone_surrogates(arguments))
        .map_err(|error| format!("its arguments cannot be sent: {error}"))
}

/// The first integer of a JSON text that has more than 64 bits and would be sent as another number.
fn too_long(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        rest = &rest[at..];
        rest = if let Some(string) = rest.strip_prefix('"') {
            after_string(string)
        } else {
            let end = rest.find(|char: char| !matches!(char, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
            let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
            let is_integer = !number.contains(['.', 'e', 'E']);
            if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                return Some(number);
            }
            after
        };
    }
    None
}

/// The text after the end of a string; `rest` begins inside the string.
fn after_string(mut rest: &str) -> &str {
    while let Some(at) = rest.find(['"', '\\']) {
        let is_end = rest[at..].starts_with('"');
        // An escape sequence begins with two ASCII characters.
        rest = rest.get(at + if is_end { 1 } else { 2 }..).unwrap_or("");
        if is_end {
            return rest;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_sent_as_they_are_written_or_not_at_all() {
        let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let table = [
            (r#"{"a": [1, -2.5, true]}"#.to_owned(), Ok(r#"{"a":[1,-2.5,true]}"#.to_owned())),
            (r#"{"a":"\ud83d"}"#.to_owned(), Ok("{\"a\":\"\u{fffd}\"}".to_owned())),
            (
                r#"{"a":18446744073709551615,"b":-9223372036854775808}"#.to_owned(),
                Ok(r#"{"a":18446744073709551615,"b":-9223372036854775808}"#.to_owned()),
            ),
            (
                r#"{"a":"\\\" 99999999999999999999","b\"":1}"#.to_owned(),
                Ok(r#"{"a":"\\\" 99999999999999999999","b\"":1}"#.to_owned()),
            ),
            (deep(127), Ok(deep(127))),
            (deep(128), Err("recursion limit exceeded")),
            (r#"{"n":1e999}"#.to_owned(), Err("number out of range")),
            (r#"{"n":18446744073709551616}"#.to_owned(), Err("the integer 18446744073709551616 has more than 64 bits")),
            (
                r#"{"n":[-9223372036854775809]}"#.to_owned(),
                Err("the integer -9223372036854775809 has more than 64 bits"),
            ),
        ];
        for (written, expected) in table {
            match (object(&written), expected) {
                (Ok(object), Ok(expected)) => {
                    assert_eq!(Value::Object(object).to_string(), expected, "{written}");
                }
                (Err(why), Err(expected)) => {
                    assert!(why.starts_with("its arguments cannot be sent: "), "{why}");
                    assert!(why.contains(expected), "{why}");
                }
                (found, expected) => panic!("{written}: {found:?} in place of {expected:?}"),
            }
        }
    }
}
