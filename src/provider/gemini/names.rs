//! Escapes tool names: the service rejects names that start with a digit or a dash.

use std::borrow::Cow;

use crate::provider::call_names;

/// Escapes a name with a leading underscore if the service would reject it. A name that looks like
/// an escaped one is escaped too.
pub(super) fn escape(name: &str) -> Cow<'_, str> {
    if needs_escape(name) { Cow::Owned(format!("_{name}")) } else { Cow::Borrowed(name) }
}

/// The name of a call that is sent back, or of its result. The model may have invented the name.
pub(super) fn escape_call(name: &str) -> Cow<'_, str> {
    if call_names::is_accepted(name, call_names::MAX_NAME_CHARS) {
        return escape(name);
    }
    // One character is reserved for the underscore.
    match call_names::sanitize(name, call_names::MAX_NAME_CHARS - 1) {
        Cow::Borrowed(name) => escape(name),
        Cow::Owned(name) => Cow::Owned(escape(&name).into_owned()),
    }
}

/// Reverses the escaping in the name of a tool that the model calls.
pub(super) fn unescape(name: String) -> String {
    match name.strip_prefix('_') {
        Some(rest) if needs_escape(rest) => rest.to_owned(),
        Some(_) | None => name,
    }
}

/// Whether the first character after any underscores is a digit or a dash.
fn needs_escape(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|first: char| first.is_ascii_digit() || first == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_service_refuses_are_sent_with_an_underscore_and_come_back_without() {
        let table = [
            ("look", "look"),
            ("_look", "_look"),
            ("__", "__"),
            ("look_3d", "look_3d"),
            ("3d", "_3d"),
            ("-x", "_-x"),
            ("_3d", "__3d"),
            ("__-x", "___-x"),
        ];
        for (name, on_the_wire) in table {
            assert_eq!(escape(name), on_the_wire);
            assert_eq!(unescape(on_the_wire.to_owned()), name);
        }
    }
}
