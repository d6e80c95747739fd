//! Escapes tool names: the service rejects names that start with a digit or a dash.

use std::borrow::Cow;

use crate::provider::call_names;

/// Escapes a name with a leading underscore if the service would reject it. A name that looks like
/// an escaped one is escaped too.
pub(super) fn sent(name: &str) -> Cow<'_, str> {
    if is_marked_or_refused(name) {
        Cow::Owned(format!("_{name}"))
    } else {
        Cow::Borrowed(name)
    }
}

/// The name of a call that is sent back, or of its result. The model may have invented the name.
pub(super) fn called(name: &str) -> Cow<'_, str> {
    if call_names::is_taken(name, call_names::MOST) {
        return sent(name);
    }
    // One character is reserved for the underscore.
    match call_names::sent(name, call_names::MOST - 1) {
        Cow::Borrowed(name) => sent(name),
        Cow::Owned(name) => Cow::Owned(sent(&name).into_owned()),
    }
}

/// Reverses the escaping in the name of a tool that the model calls.
pub(super) fn received(name: String) -> String {
    match name.strip_prefix('_') {
        Some(rest) if is_marked_or_refused(rest) => rest.to_owned(),
        Some(_) | None => name,
    }
}

/// Whether the first character after any underscores is a digit or a dash.
fn is_marked_or_refused(name: &str) -> bool {
    name.trim_start_matches('_')
        .starts_with(|first: char| first.is_ascii_digit() || first == '-')
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
            assert_eq!(sent(name), on_the_wire);
            assert_eq!(received(on_the_wire.to_owned()), name);
        }
    }
}
