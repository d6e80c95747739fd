//! Decodes the host's labels on sessions and messages.

use std::collections::BTreeMap;

use super::text;

/// Replaces characters of the values that cannot be stored. Keys are single lines.
pub(super) fn labels(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.values_mut().for_each(text::clean);
    labels
}
