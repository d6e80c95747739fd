//! The ways to make a context smaller, tried one after the other.

use crate::model::compaction::Strategy;

/// A way to make a context smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By a strategy. What no model has answered stays.
    Answered(Strategy),
    /// What no model has answered too, but the newest input: every message is shown in part.
    Cut,
    /// The same, by a strategy that has a model write a summary.
    Summarised(Strategy),
    /// The same, without a summary: a note says that messages are missing.
    LeftOut,
    /// Pinned messages too, the largest first, as far as the rest does not fit without: every
    /// message that goes is shown in part.
    CutPinned,
    /// The same with the note.
    LeftOutPinned,
}

/// What stands in place of the messages that a compaction hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Substitute {
    /// A summary that a model writes.
    Summary,
    /// The summary in force, if there is one.
    InForce,
    /// An excerpt: each message cut to the same length.
    Excerpt,
    /// The summary in force and a note.
    Note,
}

impl Way {
    /// The strategy that is reported.
    pub fn strategy(self) -> Strategy {
        match self {
            Self::Answered(strategy) | Self::Summarised(strategy) => strategy,
            Self::Cut | Self::LeftOut | Self::CutPinned | Self::LeftOutPinned => {
                Strategy::Truncation
            }
        }
    }

    /// What stands in place of what goes.
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

    /// Whether what no model has answered goes too. Done only where the prompt fits then: it would
    /// be lost for nothing otherwise.
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

    /// Whether pinned messages go too. Done last of all: without it no turn of the session could
    /// reach a model any more.
    pub fn takes_pinned(self) -> bool {
        match self {
            Self::Answered(_) | Self::Cut | Self::Summarised(_) | Self::LeftOut => false,
            Self::CutPinned | Self::LeftOutPinned => true,
        }
    }
}

/// How far a context may be made smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// It need not become smaller: it waits rather than to lose what no summary was written of.
    Wish,
    /// It has to become smaller. What no model has answered stays.
    Must,
    /// It has to become smaller whatever is lost, but the newest input.
    AtAnyCost,
}

/// The ways to try, one after the other.
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
