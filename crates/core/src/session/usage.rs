//! Records the usage of a model call that a host made itself in an idle session.

use super::{
    Session, SessionState,
    change::{Change, ModelUsage},
};
use crate::model::{Anchor, Fence, MessageId, Payload, Usage, UsagePurpose, UsageTotals};

#[cfg(test)]
mod tests;

/// The usage report of a call.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// The fence that the caller read.
    pub fence: Fence,
    /// The version of the context that the caller read.
    pub context_version: i64,
    pub purpose: UsagePurpose,
    /// Model reference.
    pub model: &'a str,
    /// The usage reported by the provider.
    pub usage: &'a Usage,
    pub event: &'a Payload,
    /// The message that the call produced, and the encoded data to store with it.
    pub message: Option<(&'a MessageId, &'a [u8])>,
    /// The measured size. `None` means the prompt of the call is not known.
    pub measured: Option<&'a Anchor>,
}

/// Records the usage of a call. Returns `None` if a turn is running, or the transcript has changed since it was read.
pub fn record<'a>(session: &Session, report: &Report<'a>) -> Option<Change<'a>> {
    let unmoved = session.context_version == report.context_version && session.fence == report.fence;
    if session.state != SessionState::Idle || !unmoved {
        return None;
    }
    let mut change = Change::of(session);
    change.usage = Some(ModelUsage {
        purpose: report.purpose,
        model: report.model,
        totals: UsageTotals::default().plus(Some(report.usage)),
    });
    if let Some(measured) = report.measured {
        change.measure(measured);
    }
    change.host_model_call = report.message;
    change.is_use = true;
    change.append_event(report.event, None);
    Some(change)
}
