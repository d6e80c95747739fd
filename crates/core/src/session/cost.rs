//! The cost of a step, and the growth of prompts that is derived from it.

use super::Session;
use crate::model::{Anchor, MessageId, Usage, UsageTotals};

/// Weight of the newest value in the moving average of prompt growth.
const NEWEST_GROWTH: f64 = 0.3;

/// The cost of a step, and its message.
#[derive(Debug, Clone, Default)]
pub struct StepCost<'a> {
    /// Model reference.
    pub model: &'a str,
    /// The usage, if reported. The outer `None` means no call was made.
    pub call: Option<Option<&'a Usage>>,
    /// The assistant message that was committed.
    pub message: Option<&'a MessageId>,
    /// The measured size. `None` means the provider reported no usage.
    pub measured: Option<Anchor>,
}

impl StepCost<'_> {
    /// The number of calls and their tokens.
    pub fn totals(&self) -> UsageTotals {
        self.call.map(|usage| UsageTotals::default().plus(usage)).unwrap_or_default()
    }
}

/// The moving average of prompt growth. It is updated only from two prompts of the same model and context version, and
/// only if the second is not smaller.
pub(super) fn grown(session: &Session, measured: &Anchor) -> Option<f64> {
    let newest = session
        .anchor
        .as_ref()
        .filter(|before| before.model == measured.model && before.version == measured.version)
        .and_then(|before| measured.input.checked_sub(before.input));
    let Some(newest) = newest.map(f64::from) else {
        return session.growth;
    };
    Some(session.growth.map_or(newest, |before| (1.0 - NEWEST_GROWTH) * before + NEWEST_GROWTH * newest))
}
