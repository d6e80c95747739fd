//! The invariants of a session, as ARCHITECTURE.md lists them: one function for each, on one type for the stored data.
//! The protocol run, the race tests of the queue, the simulation and chaos use them. They share no statements, types or
//! conversions with the program.

mod ends;
mod numbers;
pub mod owners;
mod queue;
pub mod read;
mod stored;
mod transcript;

use std::fmt;

pub use stored::{Call, Compaction, Event, Message, Part, Queued, QueuedStatus, RunState, Stored, Turn};
pub use transcript::one_answer_per_step;

/// An invariant that is checked on the stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Events are numbered without gaps and committed with the change that they describe.
    I1,
    /// Only the owner of a session writes to it, under its fencing epoch.
    I2,
    /// A queued message ends exactly once, and is in the transcript only if it was applied.
    I3,
    /// The transcript is closed or ends in one batch of open calls.
    I4,
    /// A turn ends once, with one event, and its end never changes.
    I9,
}

/// A violation of an invariant. Printed as `I4 batch: ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    /// The violated rule of the invariant.
    pub name: &'static str,
    /// The evidence.
    pub detail: String,
}

impl Violation {
    fn new(invariant: Invariant, name: &'static str, detail: String) -> Self {
        Self { invariant, name, detail }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, name, detail } = self;
        write!(f, "{invariant:?} {name}: {detail}")
    }
}

/// All violations in a session.
pub fn check(session: &Stored) -> Vec<Violation> {
    [numbers::i1(session), owners::i2(session), queue::i3(session), transcript::i4(session), ends::i9(session)].concat()
}
