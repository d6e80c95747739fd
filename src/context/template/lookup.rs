//! Which family a model belongs to.

use std::collections::BTreeSet;

use super::{
    Template,
    family::Rule,
    table::{RULES, TEMPLATES, UNKNOWN},
};

impl Template {
    /// The template of a model. `service` is what serves the API: the dialect's name, or the
    /// provider's where that says nothing. An unknown model is counted as a relative of
    /// OpenAI's, with a wide margin.
    pub fn of(service: &str, model: &str) -> &'static Self {
        let model = model.to_ascii_lowercase();
        let pieces: Vec<&str> = pieces(&model).collect();
        let fits = |rule: &&Rule| rule.fits(service, &pieces);
        let named = RULES
            .iter()
            .find(fits)
            .and_then(|rule| Self::named(rule.template));
        named.unwrap_or(&UNKNOWN)
    }

    /// The services that write prompts in a form of their own, in order of their names.
    pub fn services() -> BTreeSet<&'static str> {
        RULES
            .iter()
            .flat_map(|rule| rule.services)
            .copied()
            .collect()
    }

    /// The template of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TEMPLATES.iter().chain([&UNKNOWN])
    }

    /// Whether it is that of a family, and not the stand-in for unknown models.
    pub fn is_of_a_family(&self) -> bool {
        self.name != UNKNOWN.name
    }

    /// The name under which counts are stored, such as `o200k+openai`.
    pub fn estimator(&self) -> String {
        format!("{}+{}", self.counter().name(), self.name)
    }
}

impl Rule {
    fn fits(&self, service: &str, pieces: &[&str]) -> bool {
        let service = self.services.is_empty() || self.services.contains(&service);
        let named = |name: &&str| pieces.iter().any(|piece| begins(piece, name));
        service && (self.models.is_empty() || self.models.iter().any(named))
    }
}

/// A model's name from its beginning and from the beginning of each of its pieces.
fn pieces(model: &str) -> impl Iterator<Item = &str> {
    let between = |character: char| !character.is_ascii_alphanumeric();
    std::iter::once(model).chain(
        model
            .match_indices(between)
            .map(|(at, between)| &model[at + between.len()..]),
    )
}

/// Whether this is what a piece begins with, or all of it but a variant.
fn begins(piece: &str, name: &str) -> bool {
    match name.strip_suffix('$') {
        Some(name) => piece
            .strip_prefix(name)
            .is_some_and(|after| after.is_empty() || after.starts_with(':')),
        None => piece.starts_with(name),
    }
}
