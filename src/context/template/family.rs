//! Which family a model belongs to.

use super::{
    Costs, Definitions,
    table::{RULES, TEMPLATES, UNKNOWN},
};
use crate::context::tokens::Vocabulary;

/// How one model family writes a prompt, and what that costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its name.
    pub name: &'static str,
    /// What its texts are counted with.
    pub vocabulary: Vocabulary,
    /// Whether that is the model's own, so that texts are counted exactly.
    pub own_vocabulary: bool,
    /// How it writes the definitions of tools.
    pub definitions: Definitions,
    /// Whether thinking inside `<think>` is left out of earlier answers.
    pub drops_thinking: bool,
    /// Whether tools are left out where none may be called.
    pub none_hides_tools: bool,
    /// Whether other tools are left out where one must be called.
    pub forced_hides_others: bool,
    /// How far off a prediction is to be expected, in hundredths of it.
    pub margin_percent: u32,
    /// What each term costs.
    pub costs: Costs,
}

/// Which models a template is for. The first rule that fits counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// Services it is for; empty: whatever the service.
    pub services: &'static [&'static str],
    /// What a model's name begins with or has behind a `-`, `/`, `.` or `_`; empty: whatever the model. With a `$` at its end it is
    /// the end of the name too, but for a variant such as `:free`.
    pub models: &'static [&'static str],
    /// The template's name.
    pub template: &'static str,
}

impl Template {
    /// The template of a model. `service` is what answers behind the API: the dialect's name, or the provider's where that says
    /// nothing. A model that nobody knows is counted as a relative of OpenAI's, with a wide margin.
    pub fn of(service: &str, model: &str) -> &'static Self {
        let model = model.to_ascii_lowercase();
        let fits = |rule: &&Rule| rule.fits(service, &model);
        let named = RULES.iter().find(fits).and_then(|rule| Self::named(rule.template));
        named.unwrap_or(&UNKNOWN)
    }

    /// The template of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TEMPLATES.iter().find(|template| template.name == name)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TEMPLATES.iter().chain([&UNKNOWN])
    }

    /// The name under which counts are stored, such as `o200k+openai`.
    pub fn estimator(&self) -> String {
        format!("{}+{}", self.counter().name(), self.name)
    }
}

impl Rule {
    fn fits(&self, service: &str, model: &str) -> bool {
        let service = self.services.is_empty() || self.services.contains(&service);
        service && (self.models.is_empty() || self.models.iter().any(|name| names(model, name)))
    }
}

/// Whether a model's name has this at its beginning or at the beginning of one of its pieces.
fn names(model: &str, name: &str) -> bool {
    let (name, whole) = name.strip_suffix('$').map_or((name, false), |name| (name, true));
    model.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&model[..at], &model[at + name.len()..]);
        let ends = behind.is_empty() || behind.starts_with(':');
        !before.ends_with(|before: char| before.is_ascii_alphanumeric()) && (ends || !whole)
    })
}
