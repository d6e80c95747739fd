//! How requests of one provider are written.

use super::dialect::Dialect;
use crate::{model::Message, provider::authorship};

/// How requests of one provider are written.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// What the service speaks.
    pub dialect: &'a Dialect,
    /// Configured name of the provider.
    pub provider: &'a str,
    /// The model that is asked is known to reason.
    pub reasons: bool,
    /// Summaries of reasoning are asked for.
    pub summaries: bool,
    /// What the model that is asked made goes back as it was; else only its words and its calls.
    pub with_own: bool,
}

impl Form<'_> {
    /// Whether a message goes back as the model that is asked made it.
    pub(super) fn is_own(self, model: &str, message: &Message) -> bool {
        self.with_own
            && self.dialect.takes_own()
            && authorship::wrote(self.provider, model, message)
    }
}
