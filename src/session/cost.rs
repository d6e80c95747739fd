//! What a step costs.

use crate::model::{Anchor, MessageId, Usage, UsageTotals};

/// What a step cost, and what it wrote.
#[derive(Debug, Clone, Default)]
pub struct StepCost<'a> {
    /// Model reference.
    pub model: &'a str,
    /// The usage. `None` means no call was made.
    pub call: Option<Option<&'a Usage>>,
    /// The assistant message that was written.
    pub message: Option<&'a MessageId>,
    /// What the call measured. `None` means its provider reported nothing.
    pub measured: Option<Anchor>,
}

impl StepCost<'_> {
    /// The calls and their tokens.
    pub fn totals(&self) -> UsageTotals {
        self.call
            .map(|usage| UsageTotals::default().plus(usage))
            .unwrap_or_default()
    }
}
