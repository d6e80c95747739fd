//! The sequence of ways to make a context smaller, tried in order.

use crate::model::compaction::Strategy;

/// A way to make a context smaller. "Unread" messages are those after the model's last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMethod {
    /// By a strategy. Unread messages are kept.
    KeepUnanswered(Strategy),
    /// Also replaces unread messages except the newest input; every message is shown in part.
    Excerpt,
    /// Like `Excerpt`, but by a strategy in which a model writes a summary.
    SummariseUnanswered(Strategy),
    /// Like `Excerpt`, but with a note that messages are missing instead of a summary or excerpt.
    Omit,
    /// Like `Excerpt`, but also replaces pinned messages, largest first, until the rest fits.
    ExcerptPinned,
    /// Like `Omit`, but also replaces pinned messages, largest first, until the rest fits.
    OmitPinned,
}

/// The text that replaces the messages hidden by a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Substitute {
    /// A summary that a model writes.
    Summary,
    /// The active summary, if any.
    ActiveSummary,
    /// An excerpt: each message truncated to the same length.
    Excerpt,
    /// The active summary and a note.
    Note,
}

impl Substitute {
    /// Whether it truncates an active summary that is too large. Then a compaction may hide the summary alone.
    pub fn shortens_summary(self) -> bool {
        match self {
            Self::Summary | Self::ActiveSummary => false,
            Self::Excerpt | Self::Note => true,
        }
    }
}

impl CompactionMethod {
    /// The strategy to report.
    pub fn strategy(self) -> Strategy {
        match self {
            Self::KeepUnanswered(strategy) | Self::SummariseUnanswered(strategy) => strategy,
            Self::Excerpt | Self::Omit | Self::ExcerptPinned | Self::OmitPinned => Strategy::Truncation,
        }
    }

    /// The text that replaces the hidden messages.
    pub fn substitute(self) -> Substitute {
        match self {
            Self::KeepUnanswered(strategy) | Self::SummariseUnanswered(strategy) if strategy.summarises() => {
                Substitute::Summary
            }
            Self::KeepUnanswered(_) | Self::SummariseUnanswered(_) => Substitute::ActiveSummary,
            Self::Excerpt | Self::ExcerptPinned => Substitute::Excerpt,
            Self::Omit | Self::OmitPinned => Substitute::Note,
        }
    }

    /// Whether unread messages are replaced too. Only used if the prompt fits afterwards; otherwise they would be lost
    /// for nothing.
    pub fn replaces_unanswered(self) -> bool {
        match self {
            Self::KeepUnanswered(_) => false,
            Self::Excerpt | Self::SummariseUnanswered(_) | Self::Omit | Self::ExcerptPinned | Self::OmitPinned => true,
        }
    }

    /// Whether pinned messages are replaced too. This is the last resort: without it no turn of the session could call
    /// a model any more.
    pub fn replaces_pinned(self) -> bool {
        match self {
            Self::KeepUnanswered(_) | Self::Excerpt | Self::SummariseUnanswered(_) | Self::Omit => false,
            Self::ExcerptPinned | Self::OmitPinned => true,
        }
    }
}

/// How much may be given up to make a context smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Optional: only the first strategy is tried, so that messages are not hidden without a summary.
    Optional,
    /// Required. Unread messages are kept.
    Required,
    /// Required, whatever is lost except the newest input.
    LastResort,
}

/// The ways to try, in order, starting with the strategy `first`.
pub fn ladder(first: Strategy, need: Urgency) -> impl Iterator<Item = CompactionMethod> {
    let next = [Strategy::MiddleRemoval, Strategy::Truncation];
    let further = next.into_iter().filter(move |next| need >= Urgency::Required && *next > first);
    let summarised = first.summarises().then_some(CompactionMethod::SummariseUnanswered(first));
    let unanswered = [
        Some(CompactionMethod::Excerpt),
        summarised,
        Some(CompactionMethod::Omit),
        Some(CompactionMethod::ExcerptPinned),
        Some(CompactionMethod::OmitPinned),
    ];
    let unanswered = unanswered.into_iter().flatten().filter(move |_| need == Urgency::LastResort);
    std::iter::once(first).chain(further).map(CompactionMethod::KeepUnanswered).chain(unanswered)
}
