//! Finds the family that a model belongs to.

use std::collections::BTreeSet;

use super::{
    Template,
    family::Rule,
    table::{RULES, TEMPLATES, UNKNOWN},
};

impl Template {
    /// The template of a model. `service` is the name of the API dialect, or of the provider if the dialect does not
    /// determine the service. An unknown model is treated like an OpenAI model, with a wide margin.
    pub fn of(service: &str, model: &str) -> &'static Self {
        let model = model.to_ascii_lowercase();
        let pieces: Vec<&str> = pieces(&model).collect();
        let fits = |rule: &&Rule| rule.fits(service, &pieces);
        let named = RULES.iter().find(fits).and_then(|rule| Self::named(rule.template));
        named.unwrap_or(&UNKNOWN)
    }

    /// The services with their own prompt format, sorted by name.
    pub fn services() -> BTreeSet<&'static str> {
        RULES.iter().flat_map(|rule| rule.services).copied().collect()
    }

    /// The template with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }

    /// All templates, including the one for unknown models.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TEMPLATES.iter().chain([&UNKNOWN])
    }

    /// Whether this is the template of a known family, not the one for unknown models.
    pub fn is_of_a_family(&self) -> bool {
        self.name != UNKNOWN.name
    }

    /// The name that is stored with counts, such as `o200k+openai`.
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

/// The model's name, and its suffixes from the beginning of each piece.
fn pieces(model: &str) -> impl Iterator<Item = &str> {
    let between = |character: char| !character.is_ascii_alphanumeric();
    std::iter::once(model).chain(model.match_indices(between).map(|(at, between)| &model[at + between.len()..]))
}

/// Whether the piece begins with the name; with a `$`, whether it is equal to the name, apart from a variant.
fn begins(piece: &str, name: &str) -> bool {
    match name.strip_suffix('$') {
        Some(name) => piece.strip_prefix(name).is_some_and(|after| after.is_empty() || after.starts_with(':')),
        None => piece.starts_with(name),
    }
}
