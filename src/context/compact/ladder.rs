//! The sequence of ways to make a context smaller, tried in order.

use crate::model::compaction::Strategy;

/// A way to make a context smaller. "Unread" messages are those after the model's last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By a strategy. Unread messages are kept.
    Answered(Strategy),
    /// Also replaces unread messages except the newest input; every message is shown in part.
    Cut,
    /// Like `Cut`, but by a strategy in which a model writes a summary.
    Summarised(Strategy),
    /// Like `Cut`, but with a note that messages are missing instead of a summary or excerpt.
    LeftOut,
    /// Like `Cut`, but also replaces pinned messages, largest first, until the rest fits.
    CutPinned,
    /// Like `LeftOut`, but also replaces pinned messages, largest first, until the rest fits.
    LeftOutPinned,
}

/// The text that replaces the messages hidden by a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Substitute {
    /// A summary that a model writes.
    Summary,
    /// The active summary, if any.
    InForce,
    /// An excerpt: each message truncated to the same length.
    Excerpt,
    /// The active summary and a note.
    Note,
}

impl Way {
    /// The strategy to report.
    pub fn strategy(self) -> Strategy {
        match self {
            Self::Answered(strategy) | Self::Summarised(strategy) => strategy,
            Self::Cut | Self::LeftOut | Self::CutPinned | Self::LeftOutPinned => {
                Strategy::Truncation
            }
        }
    }

    /// The text that replaces the hidden messages.
    pub fn substitute(self) -> Substitute {
        match self {
            Self::Answered(strategy) | Self::Summarised(strategy) if strategy.summarises() => {
                Substitute::Summary
            }
            Self::Answered(_) | Self::Summarised(_) => Substitute::InForce,
            Self::Cut | Self::CutPinned => Substitute::Excerpt,
            Self::LeftOut | Self::LeftOutPinned => Substitute::Note,
        }
    }

    /// Whether unread messages are replaced too. Only used if the prompt fits afterwards; otherwise they would be lost
    /// for nothing.
    pub fn takes_unanswered(self) -> bool {
        match self {
            Self::Answered(_) => false,
            Self::Cut
            | Self::Summarised(_)
            | Self::LeftOut
            | Self::CutPinned
            | Self::LeftOutPinned => true,
        }
    }

    /// Whether pinned messages are replaced too. This is the last resort: without it no turn of the session could call
    /// a model any more.
    pub fn takes_pinned(self) -> bool {
        match self {
            Self::Answered(_) | Self::Cut | Self::Summarised(_) | Self::LeftOut => false,
            Self::CutPinned | Self::LeftOutPinned => true,
        }
    }
}

/// How much may be given up to make a context smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Optional: only the first strategy is tried, so that messages are not hidden without a summary.
    Wish,
    /// Required. Unread messages are kept.
    Must,
    /// Required, whatever is lost except the newest input.
    AtAnyCost,
}

/// The ways to try, in order, starting with the strategy `first`.
pub fn ladder(first: Strategy, need: Need) -> impl Iterator<Item = Way> {
    let next = [Strategy::MiddleRemoval, Strategy::Truncation];
    let further = next
        .into_iter()
        .filter(move |next| need >= Need::Must && *next > first);
    let summarised = first.summarises().then_some(Way::Summarised(first));
    let unanswered = [
        Some(Way::Cut),
        summarised,
        Some(Way::LeftOut),
        Some(Way::CutPinned),
        Some(Way::LeftOutPinned),
    ];
    let unanswered = unanswered
        .into_iter()
        .flatten()
        .filter(move |_| need == Need::AtAnyCost);
    std::iter::once(first)
        .chain(further)
        .map(Way::Answered)
        .chain(unanswered)
}
