//! "Did you mean": the known name that is nearest to an unknown one.

/// The nearest of `known`, if it is near enough to be meant. A right last word in the wrong section
/// is near too.
pub(super) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (distance(unknown, name), name))
        .filter(|(distance, name)| *distance <= tolerance(name))
        .min()
        .map(|(_, name)| name)
}

fn distance(unknown: &str, name: &str) -> usize {
    let whole = strsim::damerau_levenshtein(unknown, name);
    if last_word(unknown) == last_word(name) {
        whole.min(1)
    } else {
        whole
    }
}

fn tolerance(name: &str) -> usize {
    (name.len() / 5).clamp(1, 4)
}

fn last_word(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}
