//! A family: how its models' prompts are written, and which models belong to it.

use super::{Costs, Definitions};
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
    /// Tokens that end an answer and are reported with it, though they are in the frame of its message where a
    /// later prompt has it.
    pub answer_end: u32,
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
    /// What a model's name begins with or has after a `-`, `/`, `.` or `_`; empty: whatever the
    /// model. With a `$` at its end it is the end of the name too, but for a variant such as
    /// `:free`.
    pub models: &'static [&'static str],
    /// The template's name.
    pub template: &'static str,
}
