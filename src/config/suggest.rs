//! Finds the known name that is most similar to an unknown one, for "did you mean".

/// The most similar name in `known`. Returns `None` if none is similar enough. A name with the same last component in
/// another section counts as similar.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (distance(unknown, name), name))
        .filter(|(distance, name)| *distance <= tolerance(name))
        .min()
        .map(|(_, name)| name)
}

fn distance(unknown: &str, name: &str) -> usize {
    let whole = strsim::damerau_levenshtein(unknown, name);
    if last_word(unknown) == last_word(name) { whole.min(1) } else { whole }
}

fn tolerance(name: &str) -> usize {
    (name.len() / 5).clamp(1, 4)
}

fn last_word(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}
