//! A model family: the form and cost of its prompts, and the models that belong to it.

use super::{Costs, Definitions};
use crate::context::tokens::Vocabulary;

/// The form of one model family's prompts, and its cost in tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub name: &'static str,
    /// The vocabulary that its texts are counted with.
    pub vocabulary: Vocabulary,
    /// The vocabulary is the model's own, so that texts are counted exactly.
    pub own_vocabulary: bool,
    /// The form of tool definitions.
    pub definitions: Definitions,
    /// Reasoning inside `<think>` is removed from earlier responses.
    pub drops_thinking: bool,
    /// No tools are sent if the tool choice is `None`.
    pub none_hides_tools: bool,
    /// Only the required tool is sent if a call of it is required.
    pub forced_hides_others: bool,
    /// End-of-response tokens: reported with the response, but part of the message's frame in later prompts.
    pub answer_end: u32,
    /// Expected error of a prediction, in percent.
    pub margin_percent: u32,
    /// The cost of each term.
    pub costs: Costs,
}

/// Which models a template applies to. The first matching rule is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The services; empty means any service.
    pub services: &'static [&'static str],
    /// What a model's name begins with or contains after a `-`, `/`, `.` or `_`; empty means any model. A `$` at the
    /// end means that the name must end there, except for a variant such as `:free`.
    pub models: &'static [&'static str],
    /// Name of the template.
    pub template: &'static str,
}
