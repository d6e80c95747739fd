//! How requests of one provider are encoded.

use super::dialect::Dialect;
use crate::{model::Message, provider::authorship};

/// How requests of one provider are encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// The dialect of the service.
    pub dialect: &'a Dialect,
    /// Configured name of the provider.
    pub provider: &'a str,
    /// Whether the model that is called is known to reason.
    pub reasons: bool,
    /// Whether summaries of reasoning are requested.
    pub summaries: bool,
    /// Whether items that this model generated are sent back unchanged. Otherwise only their text
    /// and calls are.
    pub with_own_items: bool,
}

impl EncodeOptions<'_> {
    /// Whether a message is sent back as the model that is called generated it.
    pub(super) fn is_own(self, model: &str, message: &Message) -> bool {
        self.with_own_items && self.dialect.sends_own_items() && authorship::wrote(self.provider, model, message)
    }
}
