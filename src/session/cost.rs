//! What a step costs, and what it says about those that come.

use super::Session;
use crate::model::{Anchor, MessageId, Usage, UsageTotals};

/// How much the newest growth of a prompt weighs against those before it.
const NEWEST_GROWTH: f64 = 0.3;

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

/// The growth of prompts, smoothed. Only two prompts of one model and one version of the context say
/// something about it, and only where the second is no smaller.
pub(super) fn grown(session: &Session, measured: &Anchor) -> Option<f64> {
    let newest = session
        .anchor
        .as_ref()
        .filter(|before| before.model == measured.model && before.version == measured.version)
        .and_then(|before| measured.input.checked_sub(before.input));
    let Some(newest) = newest.map(f64::from) else {
        return session.growth;
    };
    Some(session.growth.map_or(newest, |before| {
        (1.0 - NEWEST_GROWTH) * before + NEWEST_GROWTH * newest
    }))
}
