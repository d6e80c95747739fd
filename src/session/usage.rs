//! What a call used that a host made by itself, in an idle session.

use super::{
    Session, SessionState,
    change::{Change, Spent},
};
use crate::model::{Anchor, Fence, MessageId, Payload, Usage, UsagePurpose, UsageTotals};

#[cfg(test)]
mod tests;

/// The report of a call, to be recorded.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// The fence that was seen.
    pub fence: Fence,
    /// The version of the context that was seen.
    pub context_version: i64,
    /// What the call was for.
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: &'a str,
    /// What the provider reported.
    pub usage: &'a Usage,
    /// The event.
    pub event: &'a Payload,
    /// The message that the call wrote, with what is to be kept of it, encoded.
    pub message: Option<(&'a MessageId, &'a [u8])>,
    /// What the call measured. `None` means it describes no prompt that is known.
    pub measured: Option<&'a Anchor>,
}

/// Records what a call used. `None`: a turn runs, or the transcript is not what was seen.
pub fn record<'a>(session: &Session, report: &Report<'a>) -> Option<Change<'a>> {
    let unmoved =
        session.context_version == report.context_version && session.fence == report.fence;
    if session.state != SessionState::Idle || !unmoved {
        return None;
    }
    let mut change = Change::of(session);
    change.spent = Some(Spent {
        purpose: report.purpose,
        model: report.model,
        totals: UsageTotals::default().plus(Some(report.usage)),
    });
    if let Some(measured) = report.measured {
        change.measure(measured);
    }
    change.described = report.message;
    change.is_use = true;
    change.append_event(report.event, None);
    Some(change)
}
